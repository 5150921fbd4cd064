SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_decisions
AS
/*
Lists decisions that not every participant has carried out yet.
Atomicity: reads only.
Locking:   none that lasts.
Order:     the oldest first.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT d.transaction_id, d.participants, d.queue_key, d.decided_at
FROM rowpost.decision AS d
ORDER BY d.decided_at, d.transaction_id;
GO
