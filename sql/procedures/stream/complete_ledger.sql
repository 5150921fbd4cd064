SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.complete_ledger
    @job_key nvarchar(200),
    @parts bigint -- how many the job had
AS
/*
Records that all parts of a job were sent, and how many there were; a job with the same key and more parts is refused.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the job's rows.
*/
SET NOCOUNT, XACT_ABORT ON;

UPDATE l
SET l.parts = @parts
FROM rowpost.ledger AS l
WHERE l.job_key = @job_key AND (l.parts IS NULL OR l.parts <> @parts);
GO
