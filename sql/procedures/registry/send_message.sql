SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.send_message
    @queue_name nvarchar(800),
    @headers nvarchar(max),
    @body varbinary(max) = NULL,
    @id uniqueidentifier = NULL,
    @time_to_be_received_ms bigint = NULL
AS
/*
Sends to a queue by name, for ad-hoc use and for systems that send by plain SQL.
Runs as the caller: the call is dynamic SQL, which needs the caller's own right to the queue's procedure.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

DECLARE @call nvarchar(max) = CONCAT(
    N'EXEC rowpost.', QUOTENAME(CONCAT(N'send_message:', @queue_key)),
    N' @headers = @headers, @body = @body, @id = @id, @time_to_be_received_ms = @time_to_be_received_ms;'
);

EXEC sys.sp_executesql
    @call,
    N'@headers nvarchar(max), @body varbinary(max), @id uniqueidentifier, @time_to_be_received_ms bigint',
    @headers = @headers, @body = @body, @id = @id, @time_to_be_received_ms = @time_to_be_received_ms;
GO
