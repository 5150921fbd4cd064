SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_unmanaged_objects
AS
/*
Lists objects in the schema rowpost that no script of the journal made.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    CASE WHEN o.type = 'U' THEN 'table' ELSE 'procedure' END AS object_kind,
    CONCAT(N'rowpost.', o.name) AS object_name
FROM sys.objects AS o
WHERE o.schema_id = SCHEMA_ID(N'rowpost')
  AND o.type IN ('U', 'P', 'FN', 'IF', 'TF', 'V')
  AND NOT EXISTS (SELECT 1 FROM rowpost.journal AS j WHERE OBJECT_ID(j.object_name) = o.object_id)
ORDER BY o.name;
GO
