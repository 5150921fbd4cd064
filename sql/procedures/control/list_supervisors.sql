SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_supervisors
    @count int, -- maximum number of supervisors, 1 to 1000
    @after_id uniqueidentifier = NULL -- only supervisors with a higher id
AS
/*
Lists the supervisors of all hosts, with their workers as they last reported them, one page at a time.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by id.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of supervisors to list must be between 1 and 1000.', 1;

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
    s.queues,
    s.workers
FROM rowpost.supervisor AS s
WHERE @after_id IS NULL OR s.supervisor_id > @after_id
ORDER BY s.supervisor_id
OPTION (RECOMPILE); -- with the value of @after_id in the plan, each page begins at its first id
GO
