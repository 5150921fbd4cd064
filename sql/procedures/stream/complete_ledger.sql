SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.complete_ledger
    @job_key nvarchar(200),
    @parts bigint -- how many the job had
AS
/*
Records that all parts of a job were sent, and how many there were; a job with the same key and more parts is refused.
Atomicity: in the caller's transaction.
Locking:   the job's rows.
Only the login that claimed the parts and operators change them.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @is_operator bit = rowpost."_is_operator"();
DECLARE @completed int = 4000;

WHILE @completed = 4000
BEGIN
    UPDATE TOP (4000) l
    SET l.parts = @parts
    FROM rowpost.ledger AS l
    WHERE l.job_key = @job_key AND (l.parts IS NULL OR l.parts <> @parts)
      AND (l.owner_login = ORIGINAL_LOGIN() OR @is_operator = 1);

    SET @completed = @@ROWCOUNT;
END;
GO
