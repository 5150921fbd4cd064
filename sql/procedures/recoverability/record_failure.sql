SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_failure
    @queue_key nvarchar(128),
    @id uniqueidentifier -- the row's id
AS
/*
Counts a failed attempt at a message and returns the number of attempts, with this one.
Atomicity: in the caller's transaction, which must not be the one that failed.
Locking:   one row of rowpost.failure.
A count nobody touched for a week belongs to a message that was handled elsewhere: a few such rows go at each call.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED; -- READPAST is refused under SERIALIZABLE; reverts at the end

DECLARE @now datetime2(3) = SYSUTCDATETIME();

DELETE TOP (20) f
FROM rowpost.failure AS f WITH (ROWLOCK, READPAST)
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
