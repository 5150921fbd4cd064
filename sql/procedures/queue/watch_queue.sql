SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[watch_queue:{queue_key}]
    @count int, -- stop counting here, 1 to 10000: the cost is bounded at any depth
    @asleep_ms int = NULL -- for PostgreSQL, whose senders wake sleepers; here nobody can
AS
/*
Says about how many messages wait, up to @count.
Atomicity: reads only.
Locking:   as peek_queue.
Order:     from the head of the queue.
*/
SET NOCOUNT, XACT_ABORT ON;

EXEC rowpost.[peek_queue:{queue_key}] @count = @count;
GO
