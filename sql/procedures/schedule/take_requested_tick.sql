SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.take_requested_tick
    @queue_name nvarchar(800),
    @schedule_name nvarchar(400),
    @requested_at_ms bigint -- as watch_schedules returned it, in milliseconds since 1970-01-01, UTC
AS
/*
Takes the tick that an operator has requested for now, if nobody else has, and returns whether it did. The caller then sends its message.
Atomicity: in the caller's transaction, which also sends the message: both commit, or neither does.
Locking:   one row of rowpost.schedule. One that others lock is not changed.
The due times of the schedule stay as they are. A paused schedule sends it too. The caller must be allowed to receive from the queue, or be
an operator.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;
EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_name;

DECLARE @day datetime2(3) = '1970-01-01';

UPDATE s
SET s.requested_at = NULL
FROM rowpost.schedule AS s WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE s.schedule_name = @schedule_name
  AND s.queue_key = @queue_key
  AND DATEDIFF_BIG(MILLISECOND, @day, s.requested_at) = @requested_at_ms;

SELECT CAST(@@ROWCOUNT AS bit) AS taken;
GO
