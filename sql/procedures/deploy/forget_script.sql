SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.forget_script
    @script_name nvarchar(800)
AS
/*
Removes a script from the journal after its object was dropped on purpose.
Atomicity: in the caller's transaction.
Locking:   one row of the journal.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE j
FROM rowpost.journal AS j
WHERE j.script_name = @script_name;
GO
