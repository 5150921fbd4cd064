SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.advance_schedule
    @queue_name nvarchar(800),
    @schedule_name nvarchar(400),
    @seen_ms bigint, -- ticked_to as watch_schedules returned it, in milliseconds since 1970-01-01, UTC
    @ticked_to_ms bigint, -- the last tick that is done then; @seen_ms: none is, and only @next_due_ms is stored
    @next_due_ms bigint = NULL, -- the next tick after that; NULL: there is none
    @sent_due_ms bigint = NULL -- the last tick with a message; NULL: none is sent
AS
/*
Moves a schedule on over its ticks up to a time, if nobody else has, and returns whether it did. The caller then sends their messages.
Atomicity: in the caller's transaction, which also sends the messages: both commit, or neither does.
Locking:   one row of rowpost.schedule. One that others lock is not moved: whoever moves it on sends its messages.
The row is compared with what the caller has seen (ticked_to), so that of several supervisors one sends a tick. A tick that is not due by
the server's clock, and a paused schedule, are not moved on. The caller must be allowed to receive from the queue, or be an operator.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @ticked_to_ms < @seen_ms OR @next_due_ms <= @ticked_to_ms OR @sent_due_ms > @ticked_to_ms OR @sent_due_ms <= @seen_ms
    THROW 51037, N'A schedule only moves on: the tick that is done, and the next one, must be later than those before.', 1;

DECLARE @queue_key nvarchar(128);
DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @day datetime2(3) = '1970-01-01';
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_name;

-- In two steps, because DATEADD takes an int.
DECLARE @ticked_to datetime2(3) = DATEADD(MILLISECOND, CAST(@ticked_to_ms % 86400000 AS int), DATEADD(DAY, CAST(@ticked_to_ms / 86400000 AS int), @day));

UPDATE s
SET
    s.ticked_to = @ticked_to,
    s.next_due = DATEADD(MILLISECOND, CAST(@next_due_ms % 86400000 AS int), DATEADD(DAY, CAST(@next_due_ms / 86400000 AS int), @day)),
    s.sent_due = ISNULL(DATEADD(MILLISECOND, CAST(@sent_due_ms % 86400000 AS int), DATEADD(DAY, CAST(@sent_due_ms / 86400000 AS int), @day)), s.sent_due)
FROM rowpost.schedule AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE s.schedule_name = @schedule_name
  AND s.queue_key = @queue_key
  AND DATEDIFF_BIG(MILLISECOND, @day, s.ticked_to) = @seen_ms
  AND (@ticked_to_ms = @seen_ms OR @ticked_to <= @now)
  AND s.is_paused = 0;

SELECT CAST(@@ROWCOUNT AS bit) AS advanced;
GO
