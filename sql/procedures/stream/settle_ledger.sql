SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.settle_ledger
    @job_key nvarchar(400),
    @part bigint,
    @messages bigint, -- how many were sent
    @digest varchar(128) -- of the messages
AS
/*
Stores for a claimed part what was sent, so that a repetition differs from other data with the same key.
Atomicity: in the caller's transaction, with the claim and the messages.
Locking:   the part's row, and a shared lock on the job's row.
A task that ends after its job has ended is refused, so that its messages are rolled back.
Only the login that claimed the part and operators change it.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@digest, N'.')) > 65
    THROW 51034, N'The part cannot be settled: a digest has at most 64 characters.', 1;

IF NOT EXISTS (
    SELECT 1
    FROM rowpost.job AS j WITH (REPEATABLEREAD, ROWLOCK)
    WHERE j.job_key = @job_key
      AND (j.state = N'running' OR (j.state = N'sending' AND EXISTS (
        SELECT 1 FROM rowpost.job_part AS p
        WHERE p.job_key = @job_key AND p.part = @part AND p.messages = @messages AND LEFT(p.digest, 32) = LEFT(@digest, 32)
    )))
)
BEGIN
    DECLARE @text nvarchar(2048) = REPLACE(CONCAT(
        N'The job ''', @job_key, N''' has ended or was forgotten. Its part ', @part, N' was not sent.'
    ), N'%', N'%%');
    THROW 51031, @text, 1;
END;

UPDATE l
SET l.messages = @messages, l.digest = @digest
FROM rowpost.ledger AS l
WHERE l.job_key = @job_key AND l.part = @part AND l.messages IS NULL
  AND (l.owner_login = ORIGINAL_LOGIN() OR rowpost."_is_operator"() = 1);
GO
