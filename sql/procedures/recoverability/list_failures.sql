SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_failures
    @id uniqueidentifier -- the row's id
AS
/*
Lists the failed attempts at a message, in every queue.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by queue.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    q.queue_name,
    f.attempts,
    f.failed_at
FROM rowpost.queue AS q
INNER LOOP JOIN rowpost.failure AS f ON q.queue_key = f.queue_key AND f.id = @id
ORDER BY q.queue_name
OPTION (MAXDOP 1);
GO
