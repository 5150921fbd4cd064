SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[describe_spool:{queue_key}]
AS
/*
Returns the owner of the queue's spool and its first and last number; no row if no stream ever drained the queue.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    s.owned_by AS owned_by,
    s.confirmed AS confirmed,
    (SELECT MIN(m.number) FROM rowpost.spooled_message AS m WHERE m.queue_key = N'{queue_key}') AS first_number,
    (SELECT MAX(m.number) FROM rowpost.spooled_message AS m WHERE m.queue_key = N'{queue_key}') AS last_number,
    s.taken_at AS taken_at
FROM rowpost.spool AS s
WHERE s.queue_key = N'{queue_key}';
GO
