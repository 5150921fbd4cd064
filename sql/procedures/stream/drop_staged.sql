SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.drop_staged
    @job_key nvarchar(400) = NULL, -- NULL: of every job
    @seconds int = NULL, -- only messages that were staged longer ago than this; NULL: all
    @run nvarchar(80) = NULL -- only messages of this run of the job; NULL: of every run
AS
/*
Deletes staged messages that are not going to be sent, because their attempt failed or their job was stopped.
Atomicity: in the caller's transaction.
Locking:   the staged rows.
Messages of parts that a job is sending are kept.
Only messages of the caller's login are deleted, unless it is an operator.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @seconds < 0
    THROW 51003, N'The age must be 0 seconds or more.', 1;

DECLARE @before datetime2(3) = CASE WHEN @seconds IS NULL THEN '99991231' ELSE DATEADD(SECOND, -@seconds, SYSUTCDATETIME()) END;
DECLARE @is_operator bit = rowpost."_is_operator"();
DECLARE @dropped bigint = 0;
DECLARE @batch int = 4000;

WHILE @batch = 4000 -- fewer rows a statement than the threshold of lock escalation
BEGIN
    -- Two statements, so that the plan of the first one reads the rows of its job only. The second one skips locked rows.
    IF @job_key IS NOT NULL
        DELETE TOP (4000) FROM s
        FROM rowpost.staged_message AS s WITH (ROWLOCK)
        WHERE s.job_key = @job_key AND s.staged_at < @before AND (s.owner_login = ORIGINAL_LOGIN() OR @is_operator = 1)
          AND (@run IS NULL OR LEFT(s.attempt, LEN(@run) + 1) = CONCAT(@run, N'/'))
          AND NOT EXISTS (
              SELECT 1 FROM rowpost.job_part AS p
              WHERE p.job_key = s.job_key AND p.attempt = LEFT(s.attempt, CHARINDEX(N':', CONCAT(s.attempt, N':')) - 1)
          );
    ELSE
        DELETE TOP (4000) FROM s
        FROM rowpost.staged_message AS s WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE s.staged_at < @before AND (s.owner_login = ORIGINAL_LOGIN() OR @is_operator = 1)
          AND (@run IS NULL OR LEFT(s.attempt, LEN(@run) + 1) = CONCAT(@run, N'/'))
          AND NOT EXISTS (
              SELECT 1 FROM rowpost.job_part AS p
              WHERE p.job_key = s.job_key AND p.attempt = LEFT(s.attempt, CHARINDEX(N':', CONCAT(s.attempt, N':')) - 1)
          );

    SET @batch = @@ROWCOUNT;
    SET @dropped = @dropped + @batch;
END;

SELECT @dropped AS dropped;
GO
