SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_jobs
    @count int, -- how many at most, 1 to 10000
    @job_key nvarchar(400) = NULL -- NULL: every job
AS
/*
Returns jobs that write to queues, the one that changed last first, with what they sent and what they stored and did not send yet.
Atomicity: reads only.
Locking:   none that lasts.
Only jobs of the caller's login are returned, unless it is an operator.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- READPAST is not allowed in SERIALIZABLE

IF @count IS NULL OR @count NOT BETWEEN 1 AND 10000
    THROW 51003, N'The count must be a number from 1 to 10000.', 1;

DECLARE @is_operator bit = rowpost."_is_operator"();

-- rule ordered_top: a job is one row, and old ones are deleted, so that there are few.
SELECT TOP (@count)
    j.job_key, j.destination, j.sending_mode AS mode, j.state, j.started_by, j.owner_login, j.started_at, j.changed_at, j.parts,
    j.messages, j.digest, s.parts AS parts_sent, s.messages AS messages_sent,
    (SELECT COUNT_BIG(*) FROM rowpost.staged_message AS m WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE m.job_key = j.job_key) AS messages_staged
FROM rowpost.job AS j
CROSS APPLY
(
    SELECT COUNT_BIG(*) AS parts, ISNULL(SUM(l.messages), 0) AS messages
    FROM rowpost.ledger AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE l.job_key = j.job_key
) AS s
WHERE (@job_key IS NULL OR j.job_key = @job_key) AND (j.owner_login = ORIGINAL_LOGIN() OR @is_operator = 1)
ORDER BY j.changed_at DESC, j.job_key ASC;
GO
