SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.control_schedule
    @schedule_name nvarchar(400),
    @is_paused bit = NULL, -- whether nothing is sent; NULL: as before
    @run_now bit = NULL, -- request a tick for now; NULL as 0
    @reason nvarchar(400) = NULL -- for those who read it, up to 400 characters
AS
/*
Pauses or resumes a schedule in the supervisors of all hosts, or requests a tick for now, and returns the queue that sends its messages.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.schedule; waits for a supervisor that sends its message.
What was due during a pause is not sent: a schedule that is resumed begins with the next tick. A request that is not taken yet stays one.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @changed int;

UPDATE s
SET
    s.ticked_to = CASE WHEN @is_paused = 0 AND s.is_paused = 1 AND s.ticked_to < @now THEN @now ELSE s.ticked_to END,
    s.next_due = CASE WHEN @is_paused = 0 AND s.is_paused = 1 THEN NULL ELSE s.next_due END,
    s.is_paused = ISNULL(@is_paused, s.is_paused),
    s.requested_at = CASE WHEN @run_now = 1 THEN ISNULL(s.requested_at, @now) ELSE s.requested_at END,
    s.reason = CASE WHEN @is_paused IS NULL THEN s.reason ELSE @reason END,
    s.changed_by = ORIGINAL_LOGIN(),
    s.changed_at = @now
FROM rowpost.schedule AS s
WHERE s.schedule_name = @schedule_name;

SET @changed = @@ROWCOUNT;

IF @changed = 0
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'No schedule named ''', LEFT(@schedule_name, 150), N''' is stored in this database. rowpost schedules list shows those that are.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51036, @message, 1;
END;

SELECT ISNULL(q.queue_name, s.queue_key) AS queue_name
FROM rowpost.schedule AS s
LEFT JOIN rowpost.queue AS q ON s.queue_key = q.queue_key
WHERE s.schedule_name = @schedule_name;
GO
