SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[send_staged:{queue_key}]
    @job_key nvarchar(400),
    @attempts nvarchar(max) -- JSON array: the attempts that count, one of each task, in the order of the tasks
AS
/*
Moves a job's staged messages to the queue, and returns how many.
Atomicity: the caller runs it in one transaction with the ledger. Its statements write fewer rows than the threshold of SQL
           Server's lock escalation, so that receivers continue.
Locking:   the staged rows.
Only messages of the caller's login are moved, unless it is an operator.
Order:     by task, and within a task as they were staged.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @is_operator bit = rowpost."_is_operator"();
DECLARE @attempt nvarchar(400); -- longer than any that is stored, so that none is cut to one that is
DECLARE @upto bigint;
DECLARE @batch int;
DECLARE @sent bigint = 0;
DECLARE @task int = 0;

WHILE 1 = 1
BEGIN
    SET @attempt = (SELECT j.[value] FROM OPENJSON(@attempts) AS j WHERE CAST(j.[key] AS int) = @task);

    IF @attempt IS NULL
        BREAK;

    SET @task = @task + 1;
    SET @batch = 4000;

    WHILE @batch = 4000
    BEGIN
        SET @upto = (
            SELECT MAX(b.number)
            FROM
            (
                SELECT TOP (4000) s.number
                FROM rowpost.staged_message AS s
                WHERE s.job_key = @job_key AND s.attempt = @attempt AND (s.owner_login = ORIGINAL_LOGIN() OR @is_operator = 1)
                ORDER BY s.number
            ) AS b
        );

        -- The deployment makes it without the comment signs, if the table has Recoverable without a default.
        INSERT INTO {queue_table} (Id, Headers, Body /*, Recoverable */)
        SELECT ISNULL(s.id, NEWID()), s.headers, s.body /*, 1 */
        FROM rowpost.staged_message AS s
        WHERE s.job_key = @job_key AND s.attempt = @attempt AND s.number <= @upto AND (s.owner_login = ORIGINAL_LOGIN() OR @is_operator = 1)
        ORDER BY s.number;

        SET @batch = @@ROWCOUNT;
        SET @sent = @sent + @batch;

        -- rule bounded_change: @upto is the number of the 4,000th row at most.
        DELETE FROM s
        FROM rowpost.staged_message AS s
        WHERE s.job_key = @job_key AND s.attempt = @attempt AND s.number <= @upto AND (s.owner_login = ORIGINAL_LOGIN() OR @is_operator = 1);
    END;
END;

SELECT @sent AS sent;
GO
