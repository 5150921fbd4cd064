SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[send_staged:{queue_key}]
    @job_key nvarchar(200),
    @attempts nvarchar(max) -- JSON array: the attempts that count, one of each task
AS
/*
Moves a job's staged messages to the queue, and returns how many.
Atomicity: one INSERT and one DELETE; the caller runs them in one transaction with the ledger.
Locking:   the staged rows.
Order:     by task, and within a task as they were staged.
*/
SET NOCOUNT, XACT_ABORT ON;

INSERT INTO {queue_table} (Id, Headers, Body)
SELECT ISNULL(s.id, NEWID()), s.headers, s.body
FROM rowpost.staged_message AS s
WHERE s.job_key = @job_key AND s.attempt IN (SELECT j.[value] COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@attempts) AS j)
ORDER BY s.number;

DECLARE @sent bigint = @@ROWCOUNT;

DELETE FROM s
FROM rowpost.staged_message AS s
WHERE s.job_key = @job_key AND s.attempt IN (SELECT j.[value] COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@attempts) AS j);

SELECT @sent AS sent;
GO
