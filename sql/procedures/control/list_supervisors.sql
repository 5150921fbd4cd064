SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_supervisors
    @count int, -- maximum number of supervisors, 1 to 1000
    @after_id uniqueidentifier = NULL -- only supervisors with a higher id
AS
/*
Lists the supervisors of all hosts, with their workers as they last reported them, one page at a time.
Of each login the reports are returned that are newest and together have up to 1000000 characters: logins that only receive write them.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by id.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of supervisors to list must be between 1 and 1000.', 1;

WITH sized AS (
    SELECT
        o.supervisor_id,
        SUM(DATALENGTH(o.queues) + DATALENGTH(o.workers)) OVER (
            PARTITION BY o.login_name ORDER BY o.seen_at DESC, o.supervisor_id ASC ROWS UNBOUNDED PRECEDING
        ) AS so_far
    FROM rowpost.supervisor AS o
)

SELECT TOP (@count)
    s.supervisor_id,
    s.host_name,
    s.process_id,
    s.environment,
    s.rowpost_version,
    s.login_name,
    s.started_at,
    s.seen_at,
    CASE WHEN s.seen_at > SYSUTCDATETIME() THEN 0 ELSE DATEDIFF_BIG(MILLISECOND, s.seen_at, SYSUTCDATETIME()) END AS silent_ms,
    CASE WHEN z.so_far <= 2000000 THEN s.queues END AS queues, -- bytes, two of each character
    CASE WHEN z.so_far <= 2000000 THEN s.workers END AS workers
FROM rowpost.supervisor AS s
INNER JOIN sized AS z ON s.supervisor_id = z.supervisor_id
WHERE @after_id IS NULL OR s.supervisor_id > @after_id
ORDER BY s.supervisor_id
OPTION (RECOMPILE); -- with the value of @after_id in the plan, each page begins at its first id
GO
