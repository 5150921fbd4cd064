SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.register_schedule
    @schedule_name nvarchar(400),
    @queue_name nvarchar(800), -- whose supervisors send the messages
    @destination nvarchar(800), -- the queue that gets the messages
    @message_type nvarchar(800),
    @zone nvarchar(400), -- the time zone of @cron, for example Europe/Berlin
    @missed nvarchar(400), -- what becomes of ticks that nobody sent in time: skip, once or all
    @cron nvarchar(400) = NULL, -- five fields; NULL: @interval_ms is given
    @interval_ms bigint = NULL -- milliseconds between two ticks, 1000 or more
AS
/*
Stores a schedule, or changes the one of that name. A new schedule, and one with other due times, begins with the next tick from now on.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.schedule.
Ticks that are done stay done: ticked_to never moves back, not even if the server's clock did.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@schedule_name, N'.')) > 151 OR LEN(CONCAT(@destination, N'.')) > 201 OR LEN(CONCAT(@message_type, N'.')) > 201
   OR LEN(CONCAT(@cron, N'.')) > 201 OR LEN(CONCAT(@zone, N'.')) > 101
    THROW 51034, N'The schedule cannot be stored: its name may have 150 characters, destination, type and cron 200 each, and the zone 100.', 1;

IF (CASE WHEN @cron IS NULL THEN 0 ELSE 1 END) = (CASE WHEN @interval_ms IS NULL THEN 0 ELSE 1 END) OR @interval_ms < 1000
   OR ISNULL(@missed, N'') NOT IN (N'skip', N'once', N'all')
    THROW 51037, N'A schedule has either a cron expression or an interval of 1000 milliseconds or more, and missed is skip, once or all.', 1;

DECLARE @queue_key nvarchar(128);
DECLARE @now datetime2(3) = SYSUTCDATETIME();
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

UPDATE s
SET
    s.queue_key = @queue_key,
    s.destination = @destination,
    s.message_type = @message_type,
    s.cron = @cron,
    s.interval_ms = @interval_ms,
    s.zone = @zone,
    s.missed = @missed,
    s.ticked_to = CASE WHEN c.due_alike = 1 OR s.ticked_to > @now THEN s.ticked_to ELSE @now END,
    s.next_due = CASE WHEN c.due_alike = 1 THEN s.next_due END
FROM rowpost.schedule AS s WITH (UPDLOCK, HOLDLOCK)
CROSS APPLY
(
    SELECT CASE WHEN ISNULL(s.cron, N'') = ISNULL(@cron, N'') AND ISNULL(s.interval_ms, 0) = ISNULL(@interval_ms, 0)
            AND s.zone = @zone THEN 1 ELSE 0 END AS due_alike
) AS c
WHERE s.schedule_name = @schedule_name;

IF @@ROWCOUNT = 0
    INSERT INTO rowpost.schedule
    (schedule_name, queue_key, destination, message_type, cron, interval_ms, zone, missed, ticked_to, is_paused, changed_by, changed_at)
    VALUES
    (@schedule_name, @queue_key, @destination, @message_type, @cron, @interval_ms, @zone, @missed, @now, 0, ORIGINAL_LOGIN(), @now);
GO
