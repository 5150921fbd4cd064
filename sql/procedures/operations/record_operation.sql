SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_operation
    @operation_name nvarchar(50), -- what is done, for example retry
    @client nvarchar(50), -- the program, for example dashboard
    @queue_name nvarchar(800) = NULL, -- the queue that it is done to; NULL: to none in particular
    @user_name nvarchar(200) = NULL, -- who uses the program, if the login does not say it
    @message_id nvarchar(200) = NULL,
    @details nvarchar(max) = NULL, -- JSON object: what is selected and what changes; no bodies and no values of headers
    @reason nvarchar(400) = NULL, -- for those who read it, up to 400 characters
    @outcome nvarchar(1000) = NULL, -- what became of it, for example the queue to which a message went
    @done bigint = NULL, -- messages; NULL as 1, or as 0 with an executor
    @up_to bigint = NULL, -- the last row version that it applies to
    @executor uniqueidentifier = NULL -- an operation that goes on: names the process that executes it. NULL: it is done with this transaction
AS
/*
Records what an operator does, and returns its number. An operation that goes on is reported by report_operation.
Atomicity: one row in the caller's transaction, which is that of the operation itself.
Locking:   its own row.
The login must be allowed to receive from the queue, or be an operator. If no queue is named, it must be an operator.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128);
DECLARE @now datetime2(3) = SYSUTCDATETIME();

IF @queue_name IS NOT NULL
    EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

DECLARE @subject nvarchar(400) = ISNULL(@queue_name, N'all queues');
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @subject;

INSERT INTO rowpost.operation_log
(
    operation_name, operation_state, client, login_name, user_name, queue_name, message_id, details, reason, outcome, started_at, changed_at, ended_at,
    done_count, gone_count, refused_count, up_to, executor
)
VALUES
(
    @operation_name, CASE WHEN @executor IS NULL THEN N'done' ELSE N'running' END, @client, ORIGINAL_LOGIN(), @user_name, @queue_name, @message_id,
    LEFT(@details, 4000), @reason, @outcome, @now, @now, CASE WHEN @executor IS NULL THEN @now END,
    ISNULL(@done, CASE WHEN @executor IS NULL THEN 1 ELSE 0 END), 0, 0, @up_to, @executor
);

SELECT CAST(SCOPE_IDENTITY() AS bigint) AS operation_id;
GO
