SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_script
    @script_name nvarchar(400), -- path below sql/, with :<queue key> where rendered
    @script_kind varchar(10), -- once, anytime or everytime
    @script_hash char(64), -- SHA-256 of the rendered text
    @object_kind varchar(10) = NULL, -- table or procedure
    @object_name nvarchar(520) = NULL -- quoted, with its schema
AS
/*
Records in the journal that a script ran, with the fingerprint of the object that it made.
Atomicity: in the caller's transaction: journal and change commit together.
Locking:   one row of the journal.
*/
SET NOCOUNT, XACT_ABORT ON;

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
