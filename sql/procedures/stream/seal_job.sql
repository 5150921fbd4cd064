SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.seal_job
    @job_key nvarchar(400),
    @attempts nvarchar(max), -- JSON array: the attempts that count, one of each task, in the order of the tasks
    @messages nvarchar(max), -- JSON array: how many messages each of them has
    @digests nvarchar(max), -- JSON array: the digest of each
    @digest varchar(128) -- of all messages
AS
/*
Fixes what a job sends, once all its tasks have stored their messages, and returns the parts that are not sent yet.
If an earlier run was sealed, its parts are returned: they are sent, and not those of this run.
The first 32 characters of a digest do not depend on the order of messages. Only they are compared.
Atomicity: in the caller's transaction.
Locking:   the job's row.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @state nvarchar(20);
DECLARE @stored bigint;
DECLARE @stored_digest varchar(64);
DECLARE @text nvarchar(2048);
DECLARE @count bigint = (SELECT ISNULL(SUM(CAST(m.[value] AS bigint)), 0) FROM OPENJSON(@messages) AS m);

IF LEN(CONCAT(@digest, N'.')) > 65
   OR EXISTS (SELECT 1 FROM OPENJSON(@digests) AS d WHERE LEN(CONCAT(d.[value], N'.')) > 65)
   OR EXISTS (SELECT 1 FROM OPENJSON(@attempts) AS a WHERE LEN(CONCAT(a.[value], N'.')) > 101)
    THROW 51034, N'The job cannot be sealed: an attempt may have at most 100 characters, a digest 64.', 1;

SELECT @state = j.state, @stored = j.messages, @stored_digest = j.digest
FROM rowpost.job AS j WITH (UPDLOCK, ROWLOCK)
WHERE j.job_key = @job_key AND (j.owner_login = ORIGINAL_LOGIN() OR rowpost."_is_operator"() = 1);

IF @state IS NULL
BEGIN
    SET @text = REPLACE(CONCAT(N'There is no job ''', @job_key, N''' of this login: it was forgotten. Run it again.'), N'%', N'%%');
    THROW 51031, @text, 1;
END;

IF @state IN (N'sending', N'done') AND (@stored <> @count OR LEFT(@stored_digest, 32) <> LEFT(@digest, 32))
BEGIN
    SET @text = REPLACE(CONCAT(
        N'The job key ''', @job_key, N''' was already used with other messages: ', @stored, N' then, ', @count, N' now. These were not sent.',
        N' Use another key for other data.'
    ), N'%', N'%%');
    THROW 51031, @text, 1;
END;

IF @state IN (N'running', N'failed')
BEGIN
    IF EXISTS (
        SELECT 1
        FROM rowpost.ledger AS l
        LEFT JOIN OPENJSON(@messages) AS m ON CAST(m.[key] AS bigint) = l.part
        LEFT JOIN OPENJSON(@digests) AS d ON CAST(d.[key] AS bigint) = l.part
        WHERE l.job_key = @job_key
          AND (d.[value] IS NULL OR l.messages <> CAST(m.[value] AS bigint) OR LEFT(l.digest, 32) <> LEFT(d.[value], 32))
    )
    BEGIN
        SET @text = REPLACE(CONCAT(
            N'The job key ''', @job_key, N''' was already used: an earlier run sent some parts of its data, and this run has other messages in them.',
            N' Nothing was sent now. If it is the same job, repartition it by a column of its data, as the earlier run did.',
            N' If it has other data, use another job key.'
        ), N'%', N'%%');
        THROW 51031, @text, 1;
    END;

    INSERT INTO rowpost.job_part (job_key, part, attempt, messages, digest)
    SELECT @job_key, CAST(a.[key] AS bigint), a.[value] AS attempt, CAST(m.[value] AS bigint) AS messages, d.[value] AS digest
    FROM OPENJSON(@attempts) AS a
    INNER JOIN OPENJSON(@messages) AS m ON a.[key] = m.[key]
    INNER JOIN OPENJSON(@digests) AS d ON a.[key] = d.[key];

    UPDATE j
    SET
        j.state = N'sending', j.parts = (SELECT COUNT(*) FROM OPENJSON(@attempts) AS a), j.messages = @count, j.digest = @digest,
        j.changed_at = SYSUTCDATETIME()
    FROM rowpost.job AS j
    WHERE j.job_key = @job_key;
END;

SELECT p.part, p.attempt, p.messages, p.digest
FROM rowpost.job_part AS p
WHERE p.job_key = @job_key AND NOT EXISTS (SELECT 1 FROM rowpost.ledger AS l WHERE l.job_key = p.job_key AND l.part = p.part)
ORDER BY p.part;
GO
