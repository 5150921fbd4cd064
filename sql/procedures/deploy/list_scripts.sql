SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_scripts
AS
/*
Reads the journal, with the current fingerprint of each object.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by script.
*/
SET NOCOUNT, XACT_ABORT ON;

-- An INSERT into a queue's table names the column Recoverable if the table has it without a default. A procedure whose INSERT
-- does not fit the table any more has another fingerprint, so that the next deployment makes it again.
DECLARE @misfit TABLE (script_name nvarchar(400) NOT NULL PRIMARY KEY);

INSERT INTO @misfit (script_name)
SELECT j.script_name
FROM rowpost.journal AS j
INNER JOIN rowpost.queue AS q
    ON j.script_name IN
    (
        CONCAT(N'procedures/queue/send_message.sql:', q.queue_key),
        CONCAT(N'procedures/queue/send_messages.sql:', q.queue_key),
        CONCAT(N'procedures/stream/send_staged.sql:', q.queue_key),
        CONCAT(N'procedures/delayed/move_due_messages.sql:', q.queue_key)
    )
INNER JOIN sys.sql_modules AS m
    ON m.object_id = OBJECT_ID(j.object_name)
LEFT OUTER JOIN sys.columns AS c
    ON q.catalog_name IS NULL
    AND c.object_id = OBJECT_ID(CONCAT(QUOTENAME(q.schema_name), N'.', QUOTENAME(q.table_name)), N'U')
    AND c.name = N'Recoverable'
    AND c.default_object_id = 0
WHERE CASE WHEN CHARINDEX(N'/*, Recoverable */', m.[definition]) > 0 THEN 0 ELSE 1 END
    <> CASE
        WHEN c.column_id IS NOT NULL THEN 1
        WHEN COL_LENGTH(QUOTENAME(q.catalog_name) + N'.' + QUOTENAME(q.schema_name) + N'.' + QUOTENAME(q.table_name), N'Recoverable') = 1 THEN 1
        ELSE 0
    END;

SELECT
    j.script_name,
    j.script_kind,
    j.script_hash,
    j.object_kind,
    j.object_name,
    j.object_fingerprint AS recorded_fingerprint,
    CASE WHEN m.script_name IS NULL THEN rowpost."_object_fingerprint"(j.object_kind, j.object_name) ELSE N'misfit' END AS living_fingerprint,
    j.applied_at,
    j.applied_by
FROM rowpost.journal AS j
LEFT OUTER JOIN @misfit AS m
    ON j.script_name = m.script_name
ORDER BY j.script_name;
GO
