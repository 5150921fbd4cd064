SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.control_queue
    @queue_name nvarchar(800),
    @is_paused bit = NULL, -- whether supervisors receive nothing new; NULL: as before
    @worker_limit int = NULL, -- how many workers a supervisor runs at most; 0: what its environment says; NULL: as before
    @shared bit = NULL, -- with a limit: it is for all supervisors together; NULL as 0
    @reason nvarchar(400) = NULL -- for those who read it, up to 400 characters
AS
/*
Pauses or resumes a queue, or limits its workers, in the supervisors of all hosts: each sees it with its next look at the queue.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.queue_control.
A queue that is neither paused nor limited any more loses its row. Programs that receive without a supervisor, such as endpoints of
NServiceBus, do not read the table.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @worker_limit NOT BETWEEN 0 AND 10000
    THROW 51003, N'The number of workers must be between 1 and 10000, or 0 for what the environment says.', 1;

DECLARE @queue_key nvarchar(128);
DECLARE @now datetime2(3) = SYSUTCDATETIME();
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

UPDATE c
SET
    c.is_paused = ISNULL(@is_paused, c.is_paused),
    c.worker_limit = CASE WHEN @worker_limit IS NULL THEN c.worker_limit ELSE NULLIF(@worker_limit, 0) END,
    c.shared = CASE WHEN @worker_limit IS NULL THEN c.shared WHEN @worker_limit > 0 THEN ISNULL(@shared, 0) ELSE 0 END,
    c.reason = @reason,
    c.changed_by = ORIGINAL_LOGIN(),
    c.changed_at = @now
FROM rowpost.queue_control AS c WITH (UPDLOCK, HOLDLOCK)
WHERE c.queue_key = @queue_key;

IF @@ROWCOUNT = 0
    INSERT INTO rowpost.queue_control (queue_key, is_paused, worker_limit, shared, reason, changed_by, changed_at)
    VALUES
    (
        @queue_key,
        ISNULL(@is_paused, 0),
        NULLIF(@worker_limit, 0),
        CASE WHEN @worker_limit > 0 THEN ISNULL(@shared, 0) ELSE 0 END,
        @reason,
        ORIGINAL_LOGIN(),
        @now
    );

DELETE c
FROM rowpost.queue_control AS c
WHERE c.queue_key = @queue_key
  AND c.is_paused = 0
  AND c.worker_limit IS NULL;
GO
