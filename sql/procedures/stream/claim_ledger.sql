SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.claim_ledger
    @job_key nvarchar(400), -- 1 to 200 characters; longer than allowed, so that a key that is too long is refused and not cut
    @part bigint, -- from 0
    @parts bigint = NULL -- how many the job has, if known; 0: parts follow one another, as a stream's batches do
AS
/*
Claims one part of a job in the transaction that sends its messages; if it was sent before, returns what was sent.
Parts that follow one another are claimed in order: a part that is not after the last one was sent before.
Atomicity: in the caller's transaction, with what is sent.
Locking:   the new row. Waits for a session that writes the same part, 60 s at most.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- READPAST is not allowed in SERIALIZABLE
SET LOCK_TIMEOUT 60000;

IF LEN(ISNULL(@job_key, N'')) = 0 OR LEN(CONCAT(@job_key, N'.')) > 201 OR ISNULL(@part, -1) < 0 OR @parts < 0 OR (@parts > 0 AND @part >= @parts)
    THROW 51032, N'The part cannot be claimed: a job key must have 1 to 200 characters, and parts are numbered from 0 up to their number.', 1;

IF rowpost."_is_operator"() = 0
   AND EXISTS (SELECT 1 FROM rowpost.ledger AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE l.job_key = @job_key AND l.owner_login <> ORIGINAL_LOGIN())
    THROW 51031, N'The job key was used already, by another login. Use another job key.', 1;

DECLARE @other bigint = (
    SELECT MAX(ISNULL(l.parts, -1))
    FROM rowpost.ledger AS l WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) -- parts that other tasks send now are no reason to wait
    WHERE l.job_key = @job_key AND (ISNULL(l.parts, -1) <> @parts OR (l.parts > 0 AND l.parts <= @part))
);

IF @other IS NOT NULL
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'The job key ''', @job_key, N''' was used already, by a job of ',
        ISNULL(CAST(NULLIF(@other, -1) AS nvarchar(20)), N'an unknown number of'), N' parts; this one has ',
        CASE WHEN @parts > @part THEN @parts ELSE @part + 1 END,
        N'. If it is the same job, repartition it by a column of its data into the same number of parts.',
        N' If it has other data, use another job key.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51031, @message, 1;
END;

DECLARE @claimed bit = 0;

IF @parts IS NULL OR @parts > 0 OR NOT EXISTS (SELECT 1 FROM rowpost.ledger AS l WHERE l.job_key = @job_key AND l.part > @part)
BEGIN
    SET XACT_ABORT OFF; -- A part that was sent before must not end the caller's transaction.

    BEGIN TRY
        INSERT INTO rowpost.ledger (job_key, part, parts, claimed_at)
        VALUES (@job_key, @part, @parts, SYSUTCDATETIME());
        SET @claimed = 1;
    END TRY
    BEGIN CATCH
        SET XACT_ABORT ON;

        IF ERROR_NUMBER() NOT IN (2601, 2627)
            THROW;
    END CATCH;

    SET XACT_ABORT ON;
END;

-- rule bounded_change: each part of a stream removes its predecessor, so that one row is there.
IF @claimed = 1 AND @parts = 0
    DELETE FROM l
    FROM rowpost.ledger AS l
    WHERE l.job_key = @job_key AND l.part < @part;

SELECT
    @claimed AS claimed,
    (SELECT l.messages FROM rowpost.ledger AS l WHERE l.job_key = @job_key AND l.part = @part) AS messages,
    (SELECT l.digest FROM rowpost.ledger AS l WHERE l.job_key = @job_key AND l.part = @part) AS digest;
GO
