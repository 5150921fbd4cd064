SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_controls
AS
/*
Lists the queues that operators have paused or limited.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    q.queue_name,
    c.is_paused,
    c.worker_limit,
    c.shared,
    c.reason,
    c.changed_by,
    c.changed_at
FROM rowpost.queue_control AS c
INNER JOIN rowpost.queue AS q ON c.queue_key = q.queue_key
ORDER BY q.queue_name;
GO
