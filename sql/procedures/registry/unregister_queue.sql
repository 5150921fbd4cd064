SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.unregister_queue
    @queue_name nvarchar(800)
AS
/*
Removes a queue from the registry, with its failure counts, its ownership, and what operators set for it.
Atomicity: in the caller's transaction.
Locking:   the registry, until the caller commits; only deployments call it.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128);
EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

DECLARE @deleted int = 4000;

WHILE @deleted = 4000
BEGIN
    DELETE TOP (4000) f
    FROM rowpost.failure AS f
    WHERE f.queue_key = @queue_key;

    SET @deleted = @@ROWCOUNT;
END;

DELETE l
FROM rowpost.queue_ownership AS l
WHERE l.queue_key = @queue_key;

DELETE c
FROM rowpost.queue_control AS c
WHERE c.queue_key = @queue_key;

-- rule bounded_change: a row for each supervisor that receives from the queue.
DELETE s
FROM rowpost.supervised_queue AS s
WHERE s.queue_key = @queue_key;

DELETE q
FROM rowpost.queue AS q
WHERE q.queue_key = @queue_key;
GO
