SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.report_supervisor
    @supervisor_id uniqueidentifier,
    @host_name nvarchar(200),
    @process_id int,
    @environment nvarchar(200),
    @rowpost_version nvarchar(50), -- of rowpost in the supervisor
    @queues nvarchar(max), -- JSON array of the names of the queues that it receives from, up to 250000 characters
    @workers nvarchar(max), -- JSON array of its workers, up to 100000 characters
    @ended bit = NULL -- 1: it has ended and is listed no more; NULL as 0
AS
/*
Records that a supervisor is alive, and what its workers do. One row is written; queues are written only if they have changed.
Atomicity: in the caller's transaction.
Locking:   its own rows of rowpost.supervisor, then those of rowpost.supervised_queue; when it starts, those of the deleted in the same order.
A supervisor is recorded for those queues only from which its login may receive. A row that another login wrote stays as it is. Supervisors
that have been silent for a day are deleted when the next one starts.
Rights:    a new supervisor needs an operator, or a login that may receive from a queue. Of a login the 1000 supervisors that reported last are kept.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @login nvarchar(128) = ORIGINAL_LOGIN();
DECLARE @now datetime2(3) = SYSUTCDATETIME();

IF @ended = 1
BEGIN
    DELETE s
    FROM rowpost.supervisor AS s
    WHERE s.supervisor_id = @supervisor_id
      AND s.login_name = @login;

    IF @@ROWCOUNT = 1
        DELETE q
        FROM rowpost.supervised_queue AS q
        WHERE q.supervisor_id = @supervisor_id;

    RETURN;
END;

IF ISNULL(ISJSON(@queues), 0) = 0
   OR ISNULL(ISJSON(@workers), 0) = 0
   OR LEN(@queues) > 250000 -- characters; readers load many reports
   OR LEN(@workers) > 100000
   OR LEFT(LTRIM(@queues), 1) <> N'['
   OR LEFT(LTRIM(@workers), 1) <> N'['
    THROW 51033, N'A supervisor''s report must have a JSON array of queue names and one of workers, with up to 250000 and 100000 characters.', 1;

IF EXISTS (SELECT 1 FROM OPENJSON(@queues) AS j WHERE j.[type] <> 1) -- 1: string, 2: number, 5: object
   OR EXISTS (
    SELECT 1
    FROM OPENJSON(@workers) AS w
    WHERE w.[type] <> 5
       OR 4 <> (
        SELECT COUNT(*)
        FROM OPENJSON(CASE WHEN w.[type] = 5 THEN w.[value] END) AS p
        WHERE (p.[key] IN (N'queue', N'state') AND p.[type] = 1)
           OR (p.[key] IN (N'process_id', N'seconds') AND p.[type] = 2)
    )
       OR EXISTS (
        SELECT 1
        FROM OPENJSON(CASE WHEN w.[type] = 5 THEN w.[value] END) AS p
        WHERE (p.[key] = N'message' AND p.[type] NOT IN (0, 1))
           OR (p.[key] = N'message_seconds' AND p.[type] NOT IN (0, 2))
    )
)
    THROW 51033, N'A supervisor''s report must have a JSON array of queue names and one of workers, with up to 250000 and 100000 characters.', 1;

UPDATE s
SET s.seen_at = @now, s.queues = @queues, s.workers = @workers
FROM rowpost.supervisor AS s
WHERE s.supervisor_id = @supervisor_id
  AND s.login_name = @login;

IF @@ROWCOUNT = 0
BEGIN
    IF NOT EXISTS (SELECT 1 FROM rowpost.queue AS r WHERE rowpost."_may_receive"(r.queue_key) = 1) AND rowpost."_is_operator"() = 0
    BEGIN
        DECLARE @text nvarchar(2048) = CONCAT(
            N'The login ', REPLACE(@login, N'%', N'%%'), N' may not report a supervisor: it may not receive from any queue and is no operator. ',
            N'rowpost queue grant prints the statement that grants the right.'
        );
        THROW 51024, @text, 1;
    END;

    INSERT INTO rowpost.supervisor
    (supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers)
    SELECT @supervisor_id, @host_name, @process_id, @environment, @rowpost_version, @login, @now, @now, @queues, @workers
    WHERE NOT EXISTS (SELECT 1 FROM rowpost.supervisor AS s WHERE s.supervisor_id = @supervisor_id);

    IF @@ROWCOUNT = 0
        RETURN;

    DECLARE @gone TABLE (supervisor_id uniqueidentifier NOT NULL PRIMARY KEY);

    -- rule bounded_change: a row for each supervisor that did not end in order, and for each of its queues.
    DELETE s
    OUTPUT deleted.supervisor_id INTO @gone (supervisor_id)
    FROM rowpost.supervisor AS s
    WHERE s.seen_at < DATEADD(DAY, -1, @now);

    DECLARE @surplus TABLE (supervisor_id uniqueidentifier NOT NULL PRIMARY KEY);

    INSERT INTO @surplus (supervisor_id)
    SELECT o.supervisor_id
    FROM
    (
        SELECT
            s.supervisor_id,
            ROW_NUMBER() OVER (ORDER BY s.seen_at DESC, s.supervisor_id ASC) AS place
        FROM rowpost.supervisor AS s
        WHERE s.login_name = @login
    ) AS o
    WHERE o.place > 1000;

    -- rule bounded_change: about one row, as each new supervisor removes what is above the limit.
    DELETE s
    OUTPUT deleted.supervisor_id INTO @gone (supervisor_id)
    FROM rowpost.supervisor AS s
    INNER JOIN @surplus AS p ON s.supervisor_id = p.supervisor_id;

    DELETE q
    FROM rowpost.supervised_queue AS q
    INNER JOIN @gone AS g ON q.supervisor_id = g.supervisor_id;
END;

DECLARE @own TABLE (queue_key nvarchar(128) NOT NULL PRIMARY KEY);

INSERT INTO @own (queue_key)
SELECT DISTINCT r.queue_key
FROM OPENJSON(CASE WHEN ISJSON(@queues) = 1 THEN @queues END) AS j
INNER JOIN rowpost.queue AS r ON j.value = r.queue_name;

DELETE q
FROM rowpost.supervised_queue AS q
WHERE q.supervisor_id = @supervisor_id
  AND NOT EXISTS (SELECT 1 FROM @own AS o WHERE o.queue_key = q.queue_key);

INSERT INTO rowpost.supervised_queue (queue_key, supervisor_id)
SELECT o.queue_key, @supervisor_id
FROM @own AS o
WHERE NOT EXISTS (SELECT 1 FROM rowpost.supervised_queue AS q WHERE q.queue_key = o.queue_key AND q.supervisor_id = @supervisor_id)
  AND rowpost."_may_receive"(o.queue_key) = 1;
GO
