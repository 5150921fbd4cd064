SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_failure
    @queue_key nvarchar(256),
    @id uniqueidentifier -- the row's id
AS
/*
Counts a failed attempt at a message and returns the number of attempts, including this one.
Atomicity: in the caller's transaction, which must not be the transaction that failed.
Locking:   one row of rowpost.failure.
A count that was not changed for a week belongs to a message that was handled elsewhere. Each call deletes a few of them.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- SERIALIZABLE does not allow READPAST; the level reverts when the procedure ends

IF LEN(CONCAT(@queue_key, N'.')) > 129
    THROW 51034, N'The failure cannot be counted: a queue key has at most 128 characters.', 1;

EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_key;

DECLARE @now datetime2(3) = SYSUTCDATETIME();

DELETE TOP (20) f
FROM rowpost.failure AS f WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
WHERE f.failed_at < DATEADD(DAY, -7, @now);

UPDATE f
SET f.attempts = f.attempts + 1,
    f.failed_at = @now
FROM rowpost.failure AS f WITH (UPDLOCK, HOLDLOCK)
WHERE f.queue_key = @queue_key
  AND f.id = @id;

IF @@ROWCOUNT = 0
    INSERT INTO rowpost.failure (queue_key, id, attempts, failed_at)
    VALUES (@queue_key, @id, 1, @now);

SELECT f.attempts
FROM rowpost.failure AS f
WHERE f.queue_key = @queue_key
  AND f.id = @id;
GO
