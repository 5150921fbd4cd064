SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.end_job
    @job_key nvarchar(400),
    @run nvarchar(80), -- of a run that failed: another run of the job goes on
    @done bit, -- 0: the run failed
    @parts bigint = NULL, -- of a direct job; NULL: as sealed
    @messages bigint = NULL,
    @digest varchar(128) = NULL
AS
/*
Records that a job is done, or that a run of it failed. A job with parts that are not sent yet is never done.
Atomicity: in the caller's transaction.
Locking:   the job's row and its parts. Waits for tasks that are storing messages.
Only the login that began the job and operators change it.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@digest, N'.')) > 65
    THROW 51034, N'The job cannot end: a digest has at most 64 characters.', 1;

DECLARE @ended bit = 0;

UPDATE j
SET
    j.state = CASE WHEN @done = 1 THEN N'done' ELSE N'failed' END,
    j.parts = ISNULL(@parts, j.parts), j.messages = ISNULL(@messages, j.messages), j.digest = ISNULL(@digest, j.digest),
    j.changed_at = SYSUTCDATETIME()
FROM rowpost.job AS j
WHERE j.job_key = @job_key AND (j.owner_login = ORIGINAL_LOGIN() OR rowpost."_is_operator"() = 1)
  AND ((@done = 0 AND j.state = N'running' AND j.run = @run)
    OR (@done = 1 AND j.state IN (N'running', N'sending') AND NOT EXISTS (
        SELECT 1 FROM rowpost.job_part AS p
        WHERE p.job_key = j.job_key AND NOT EXISTS (SELECT 1 FROM rowpost.ledger AS l WHERE l.job_key = p.job_key AND l.part = p.part)
    )));

SET @ended = CASE WHEN @@ROWCOUNT = 1 THEN 1 ELSE 0 END;

-- rule bounded_change: a job has as many parts as Spark has tasks for it.
IF @ended = 1 AND @done = 1
    DELETE FROM p
    FROM rowpost.job_part AS p
    WHERE p.job_key = @job_key;

SELECT @ended AS ended;
GO
