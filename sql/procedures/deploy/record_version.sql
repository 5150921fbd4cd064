SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_version
    @schema_version int, -- number of the newest one-time script
    @tool_version varchar(100)
AS
/*
Records which release deployed which schema; refuses an older schema than the deployed one.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.version.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@tool_version, N'.')) > 51
    THROW 51034, N'The version cannot be recorded: it may have at most 50 characters.', 1;

DECLARE @newest int = (SELECT MAX(v.schema_version) FROM rowpost.version AS v);

IF @newest > @schema_version
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'The version cannot be recorded: the database has schema ', @newest, N', and this rowpost has schema ', @schema_version,
        N'. Use a newer rowpost.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51008, @message, 1;
END;

DELETE v
FROM rowpost.version AS v
WHERE v.schema_version = @schema_version
  AND v.tool_version = @tool_version;

INSERT INTO rowpost.version (schema_version, tool_version, applied_at, applied_by)
VALUES (@schema_version, @tool_version, SYSUTCDATETIME(), SUSER_SNAME());
GO
