SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.begin_job
    @job_key nvarchar(400), -- 1 to 200 characters; longer than allowed, so that a key that is too long is refused and not cut
    @destination nvarchar(400), -- the queue
    @run nvarchar(80), -- identifies this run of the job
    @mode nvarchar(40), -- staged or direct
    @started_by nvarchar(400) = NULL -- where it runs, for people
AS
/*
Begins a run of a job and returns the job's state. A job that is running or failed belongs to this run from now on.
A job that ran before is staged, so that nothing is sent before it is compared with what the earlier run sent.
Atomicity: one INSERT or UPDATE in the caller's transaction.
Locking:   the job's row.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@destination, N'.')) > 201 OR LEN(CONCAT(@run, N'.')) > 41 OR LEN(CONCAT(@mode, N'.')) > 21
    THROW 51034, N'The job cannot begin: its destination may have at most 200 characters, its run 40 and its mode 20.', 1;

IF LEN(ISNULL(@job_key, N'')) = 0 OR LEN(CONCAT(@job_key, N'.')) > 201
    THROW 51032, N'The job cannot begin: a job key must have 1 to 200 characters.', 1;

DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @owner nvarchar(128);

INSERT INTO rowpost.job (job_key, destination, run, sending_mode, state, started_by, started_at, changed_at)
SELECT
    @job_key, @destination, @run,
    CASE WHEN EXISTS (SELECT 1 FROM rowpost.ledger AS l WITH (READCOMMITTEDLOCK) WHERE l.job_key = @job_key) THEN N'staged' ELSE @mode END,
    N'running', @started_by, @now, @now
WHERE NOT EXISTS (SELECT 1 FROM rowpost.job AS j WITH (UPDLOCK, SERIALIZABLE) WHERE j.job_key = @job_key);

IF @@ROWCOUNT = 0
BEGIN
    SET @owner = (SELECT j.owner_login FROM rowpost.job AS j WITH (UPDLOCK, ROWLOCK) WHERE j.job_key = @job_key);

    IF @owner <> ORIGINAL_LOGIN() AND rowpost."_is_operator"() = 0
        THROW 51031, N'The job key was used already, by another login. Use another job key.', 1;

    UPDATE j
    SET j.run = @run, j.sending_mode = N'staged', j.state = N'running', j.started_by = @started_by, j.changed_at = @now
    FROM rowpost.job AS j
    WHERE j.job_key = @job_key AND j.state IN (N'running', N'failed');
END;

SELECT j.state, CASE WHEN j.run = @run THEN j.sending_mode ELSE N'staged' END AS mode, j.messages, j.digest
FROM rowpost.job AS j
WHERE j.job_key = @job_key;
GO
