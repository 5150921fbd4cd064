SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.receive_messages
    @queue_name nvarchar(800),
    @count int,
    @after_row_version bigint = NULL
AS
/*
Receives from a queue by name, for ad-hoc use.
Runs as the caller: the call is dynamic SQL, which needs the caller's own right to the queue's procedure.
Atomicity: one DELETE in the caller's transaction.
Locking:   as the queue's receive_messages.
Order:     as the queue's receive_messages.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

DECLARE @call nvarchar(max) = CONCAT(
    N'EXEC rowpost.', QUOTENAME(CONCAT(N'receive_messages:', @queue_key)), N' @count = @count, @after_row_version = @after_row_version;'
);

EXEC sys.sp_executesql @call, N'@count int, @after_row_version bigint', @count = @count, @after_row_version = @after_row_version;
GO
