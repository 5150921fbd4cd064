SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.forget_job
    @job_key nvarchar(400)
AS
/*
Deletes what is known of a job, so that its key is free, and returns its state and what it sent. Its messages in queues stay.
Its staged messages are not sent any more; drop_staged deletes them. There is no row if there is no such job.
Atomicity: in the caller's transaction.
Locking:   the job's rows.
Only jobs of the caller's login are deleted, unless it is an operator.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @gone TABLE (state nvarchar(20) NOT NULL);
DECLARE @parts bigint;
DECLARE @messages bigint;
DECLARE @batch int = 4000;

DELETE FROM j
OUTPUT deleted.state INTO @gone (state)
FROM rowpost.job AS j
WHERE j.job_key = @job_key AND (j.owner_login = ORIGINAL_LOGIN() OR rowpost."_is_operator"() = 1);

IF @@ROWCOUNT = 1
BEGIN
    -- rule bounded_change: a job has as many parts as Spark has tasks for it.
    DELETE FROM p
    FROM rowpost.job_part AS p
    WHERE p.job_key = @job_key;

    SELECT @parts = COUNT_BIG(*), @messages = ISNULL(SUM(l.messages), 0)
    FROM rowpost.ledger AS l
    WHERE l.job_key = @job_key;

    WHILE @batch = 4000
    BEGIN
        DELETE TOP (4000) FROM l
        FROM rowpost.ledger AS l
        WHERE l.job_key = @job_key;

        SET @batch = @@ROWCOUNT;
    END;
END;

SELECT g.state, @parts AS parts, @messages AS messages
FROM @gone AS g;
GO
