SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_script
    @script_name nvarchar(800), -- path below sql/, with :<queue key> where rendered
    @script_kind varchar(20), -- once, anytime or everytime
    @script_hash varchar(128), -- SHA-256 of the rendered text
    @object_kind varchar(20) = NULL, -- schema, table or procedure
    @object_name nvarchar(1040) = NULL -- quoted, with its schema
AS
/*
Records in the journal that a script ran, with the fingerprint of the object that it made.
Atomicity: in the caller's transaction: journal and change commit together.
Locking:   one row of the journal.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@script_name, N'.')) > 401 OR LEN(CONCAT(@script_hash, N'.')) > 65
   OR LEN(CONCAT(@object_name, N'.')) > 521
    THROW 51034, N'The script cannot be recorded: its name may have at most 400 characters, its hash 64 and the name of its object 520.', 1;

IF @script_kind = 'once'
   AND EXISTS (SELECT 1 FROM rowpost.journal AS j WHERE j.script_name = @script_name AND j.script_hash <> @script_hash)
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'The one-time script ', @script_name, N' was edited after it ran here. Restore it, and put the change into a new script.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51007, @message, 1;
END;

DELETE j
FROM rowpost.journal AS j
WHERE j.script_name = @script_name;

INSERT INTO rowpost.journal (script_name, script_kind, script_hash, object_kind, object_name, object_fingerprint, applied_at, applied_by)
VALUES
(
    @script_name, @script_kind, @script_hash, @object_kind, @object_name,
    rowpost."_object_fingerprint"(@object_kind, @object_name), SYSUTCDATETIME(), SUSER_SNAME()
);
GO
