SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.get_definition
    @object_name nvarchar(1040) -- quoted, with its schema
AS
/*
Reads the text of a procedure in the server, for a review; no row if it does not exist or the caller may not see it.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT m.[definition]
FROM sys.sql_modules AS m
WHERE m.object_id = OBJECT_ID(@object_name)
  AND OBJECT_SCHEMA_NAME(m.object_id) = N'rowpost';
GO
