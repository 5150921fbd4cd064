SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.stage_messages
    @job_key nvarchar(400), -- 1 to 200 characters; longer than allowed, so that a key that is too long is refused and not cut
    @attempt nvarchar(200), -- one attempt of one task; of a job it begins with its run and a slash
    @messages nvarchar(max), -- JSON array as send_messages takes it; staged messages never expire
    @bodies varbinary(max) = NULL -- the bodies, one after another; body_start counts from 1
AS
/*
Stores messages that are sent when all tasks of a job, or of a batch of a stream, have stored theirs.
Nothing is stored for a job that has ended, nor for an earlier run of it.
Atomicity: one INSERT in the caller's transaction.
Locking:   the new rows, and a shared lock on the job's row.
Order:     numbers increase with the ordinal.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@attempt, N'.')) > 101
    THROW 51034, N'The messages cannot be staged: an attempt may have at most 100 characters.', 1;

IF LEN(ISNULL(@job_key, N'')) = 0 OR LEN(CONCAT(@job_key, N'.')) > 201
    THROW 51032, N'The messages cannot be staged: a job key must have 1 to 200 characters.', 1;

IF ISNULL(LEFT(@messages, 1), N'') <> N'['
    THROW 51006, N'The messages cannot be stored: @messages must be a JSON array.', 1;

INSERT INTO rowpost.staged_message (job_key, attempt, id, headers, body, staged_at)
SELECT @job_key, @attempt, m.id, m.headers, SUBSTRING(@bodies, m.body_start, m.body_length), SYSUTCDATETIME()
FROM OPENJSON(@messages) WITH
(
    ordinal int,
    headers nvarchar(max),
    body_start bigint,
    body_length bigint,
    id uniqueidentifier
) AS m
-- the lock on the job's row lasts as long as the statement at least, so that a job ends before or after it
WHERE EXISTS (
    SELECT 1 FROM rowpost.job AS j WITH (REPEATABLEREAD, ROWLOCK)
    WHERE j.job_key = @job_key AND j.state = N'running' AND LEFT(@attempt, LEN(j.run) + 1) = CONCAT(j.run, N'/')
)
OR NOT EXISTS (SELECT 1 FROM rowpost.job AS j WHERE j.job_key = @job_key)
ORDER BY m.ordinal;

IF @@ROWCOUNT = 0 AND EXISTS (SELECT 1 FROM OPENJSON(@messages) AS m)
BEGIN
    DECLARE @text nvarchar(2048) = REPLACE(CONCAT(
        N'This run of the job ''', @job_key, N''' has ended, or another run of it has begun. Its messages are not stored.'
    ), N'%', N'%%');
    THROW 51031, @text, 1;
END;
GO
