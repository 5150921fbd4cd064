SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.get_version
AS
/*
Returns which schema is deployed, by which release, on which engine.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

-- rule ordered_top: the table has one row for each release that was deployed.
SELECT TOP (1)
    v.schema_version,
    v.tool_version,
    v.applied_at,
    CAST(CONCAT(N'SQL Server ', CAST(SERVERPROPERTY(N'ProductVersion') AS nvarchar(100))) AS nvarchar(200)) AS engine_version
FROM rowpost.version AS v
ORDER BY v.schema_version DESC, v.applied_at DESC;
GO
