SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[load_saga:{saga_key}]
    @id uniqueidentifier = NULL, -- NULL: by correlation value
    @correlation_value nvarchar(4000) = NULL,
    @locked bit, -- hold the row until the transaction ends
    @lock_timeout_ms int -- wait at most so long for another session that has locked it, rounded up as below
AS
/*
Finds an instance by its id or by its correlation value, and locks it if asked to; returns nothing if there is none.
Atomicity: reads and locks in the caller's transaction.
Locking:   with @locked the instance's row, for update: others wait here, no longer than @lock_timeout_ms (error 1222).
Order:     at most one row.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @id IS NULL AND @correlation_value IS NULL OR LEN(CONCAT(@correlation_value, N'.')) > 201
    THROW 51014, N'The saga cannot be loaded: give its id, or a correlation value of at most 200 characters.', 1;

-- SET LOCK_TIMEOUT takes a number and no variable; from 50 ms to 20 days.
IF @lock_timeout_ms <= 50 SET LOCK_TIMEOUT 50;
ELSE IF @lock_timeout_ms <= 100 SET LOCK_TIMEOUT 100;
ELSE IF @lock_timeout_ms <= 250 SET LOCK_TIMEOUT 250;
ELSE IF @lock_timeout_ms <= 500 SET LOCK_TIMEOUT 500;
ELSE IF @lock_timeout_ms <= 1000 SET LOCK_TIMEOUT 1000;
ELSE IF @lock_timeout_ms <= 2000 SET LOCK_TIMEOUT 2000;
ELSE IF @lock_timeout_ms <= 5000 SET LOCK_TIMEOUT 5000;
ELSE IF @lock_timeout_ms <= 10000 SET LOCK_TIMEOUT 10000;
ELSE IF @lock_timeout_ms <= 20000 SET LOCK_TIMEOUT 20000;
ELSE IF @lock_timeout_ms <= 30000 SET LOCK_TIMEOUT 30000;
ELSE IF @lock_timeout_ms <= 60000 SET LOCK_TIMEOUT 60000;
ELSE IF @lock_timeout_ms <= 120000 SET LOCK_TIMEOUT 120000;
ELSE IF @lock_timeout_ms <= 300000 SET LOCK_TIMEOUT 300000;
ELSE IF @lock_timeout_ms <= 600000 SET LOCK_TIMEOUT 600000;
ELSE IF @lock_timeout_ms <= 1800000 SET LOCK_TIMEOUT 1800000;
ELSE IF @lock_timeout_ms <= 3600000 SET LOCK_TIMEOUT 3600000;
ELSE IF @lock_timeout_ms <= 21600000 SET LOCK_TIMEOUT 21600000;
ELSE IF @lock_timeout_ms <= 86400000 SET LOCK_TIMEOUT 86400000;
ELSE SET LOCK_TIMEOUT 1728000000;

IF @id IS NULL
    SELECT @id = s.Id
    FROM {saga_table} AS s WITH (READCOMMITTEDLOCK, FORCESEEK)
    WHERE s.[{correlation_column}] = CAST(@correlation_value AS {correlation_type});

IF @locked = 1
    SELECT @id = s.Id
    FROM {saga_table} AS s WITH (UPDLOCK, ROWLOCK, READCOMMITTEDLOCK)
    WHERE s.Id = @id;

SELECT
    s.Id AS id,
    s.Data AS data,
    s.Metadata AS metadata,
    s.Concurrency AS concurrency
FROM {saga_table} AS s
WHERE s.Id = @id;
GO
