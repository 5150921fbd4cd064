-- One row per schema version and release that deployed it.
IF OBJECT_ID(N'rowpost.version', N'U') IS NULL
    CREATE TABLE rowpost.version
    (
        schema_version int NOT NULL,
        tool_version varchar(50) NOT NULL,
        applied_at datetime2(3) NOT NULL,
        applied_by nvarchar(256) NOT NULL,
        CONSTRAINT version_key PRIMARY KEY CLUSTERED (schema_version, tool_version)
    );
GO
