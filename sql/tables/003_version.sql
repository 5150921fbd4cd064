IF OBJECT_ID(N'rowpost.version', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- One row per schema version and release that deployed it.
CREATE TABLE rowpost.version
(
    schema_version int NOT NULL,
    tool_version varchar(50) NOT NULL,
    applied_at datetime2(3) NOT NULL,
    applied_by nvarchar(256) NOT NULL,
    CONSTRAINT version_key PRIMARY KEY CLUSTERED (schema_version, tool_version)
);
GO
SET NOEXEC OFF;
GO
