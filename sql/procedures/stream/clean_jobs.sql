SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.clean_jobs
    @staged_seconds int, -- how long messages of jobs that ended or do nothing are kept
    @ledger_seconds int, -- how long jobs and what they sent are kept
    @count int -- how many rows of each kind at most, 1 to 4000
AS
/*
Deletes staged messages of jobs that ended, and old jobs with their ledger.
A job that has stored and sent nothing for as long as staged messages are kept counts as failed. The ledger of a stream is kept.
Atomicity: in the caller's transaction.
Locking:   the rows that it changes; skips jobs, parts and messages that others lock. Without READ_COMMITTED_SNAPSHOT it waits
           for a task of a job that has committed nothing for as long as staged messages are kept, before it changes anything,
           and later for transactions that begin, seal or end a job.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- READPAST is not allowed in SERIALIZABLE

IF @count IS NULL OR @count NOT BETWEEN 1 AND 4000 OR ISNULL(@staged_seconds, -1) < 0 OR ISNULL(@ledger_seconds, -1) < 0
    THROW 51003, N'The count must be a number from 1 to 4000, and ages must be 0 seconds or more.', 1;

DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @before datetime2(3) = DATEADD(SECOND, -@staged_seconds, @now);
DECLARE @ledger_before datetime2(3) = DATEADD(SECOND, -@ledger_seconds, @now);
DECLARE @failed bigint;
DECLARE @staged bigint;
DECLARE @sent bigint;
DECLARE @idle TABLE (job_key nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);

-- found before anything is locked: this may wait for tasks of these jobs
INSERT INTO @idle (job_key)
SELECT TOP (@count) j.job_key
FROM rowpost.job AS j WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE j.state = N'running' AND j.changed_at < @before
  AND NOT EXISTS (SELECT 1 FROM rowpost.staged_message AS s WHERE s.job_key = j.job_key AND s.staged_at >= @before)
  AND NOT EXISTS (SELECT 1 FROM rowpost.ledger AS l WHERE l.job_key = j.job_key AND l.claimed_at >= @before);

UPDATE TOP (@count) j
SET j.state = N'failed', j.changed_at = @now
FROM rowpost.job AS j WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN @idle AS i ON j.job_key = i.job_key
WHERE j.state = N'running' AND j.changed_at < @before;

SET @failed = @@ROWCOUNT;

-- a job that was not sent completely is given up, with what it stored
DELETE TOP (@count) FROM p
FROM rowpost.job_part AS p WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN rowpost.job AS j WITH (READPAST, READCOMMITTEDLOCK) ON p.job_key = j.job_key
WHERE j.changed_at < @ledger_before;

DELETE TOP (@count) FROM s
FROM rowpost.staged_message AS s WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE s.staged_at < @before
  AND NOT EXISTS (SELECT 1 FROM rowpost.job AS j WHERE j.job_key = s.job_key AND j.state = N'running')
  AND NOT EXISTS (
      SELECT 1 FROM rowpost.job_part AS p
      WHERE p.job_key = s.job_key AND p.attempt = LEFT(s.attempt, CHARINDEX(N':', CONCAT(s.attempt, N':')) - 1)
  );

SET @staged = @@ROWCOUNT;

DELETE TOP (@count) FROM l
FROM rowpost.ledger AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE l.claimed_at < @ledger_before AND ISNULL(l.parts, -1) <> 0
  AND NOT EXISTS (SELECT 1 FROM rowpost.job AS j WHERE j.job_key = l.job_key AND (j.changed_at >= @ledger_before OR j.state = N'running'));

SET @sent = @@ROWCOUNT;

DELETE TOP (@count) FROM j
FROM rowpost.job AS j WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE j.changed_at < @ledger_before AND j.state <> N'running'
  AND NOT EXISTS (SELECT 1 FROM rowpost.ledger AS l WHERE l.job_key = j.job_key);

SELECT @failed AS failed, @staged AS staged, @sent AS sent;
GO
