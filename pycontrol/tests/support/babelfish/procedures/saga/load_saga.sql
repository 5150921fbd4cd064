SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[load_saga:{saga_key}]
    @id uniqueidentifier = NULL, -- NULL: by correlation value
    @correlation_value nvarchar(4000) = NULL,
    @locked bit, -- hold the row until the transaction ends
    @lock_timeout_ms int -- wait at most so long for another session that has locked it
AS
/*
Finds an instance by its id or by its correlation value, and locks it if asked to; returns nothing if there is none.
Atomicity: reads and locks in the caller's transaction.
Locking:   with @locked the instance's row, for update: others wait here, no longer than @lock_timeout_ms.
Order:     at most one row.
Babelfish: UPDLOCK is ignored, and LOCK_TIMEOUT takes no variable: an UPDATE that changes nothing locks, in a batch of its own.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @id IS NULL AND @correlation_value IS NULL OR LEN(CONCAT(@correlation_value, N'.')) > 201
    THROW 51014, N'The saga cannot be loaded: give its id, or a correlation value of at most 200 characters.', 1;

IF @id IS NULL
    SELECT @id = s.Id
    FROM {saga_table} AS s
    WHERE s.[{correlation_column}] = CAST(@correlation_value AS {correlation_type});

IF @locked = 1 AND @id IS NOT NULL
BEGIN
    DECLARE @lock nvarchar(max) = CONCAT(
        N'SET LOCK_TIMEOUT ', @lock_timeout_ms, N'; UPDATE s SET Concurrency = s.Concurrency FROM {saga_table} AS s WHERE s.Id = @id;'
    );
    EXEC sys.sp_executesql @lock, N'@id uniqueidentifier', @id = @id;
END;

SELECT
    s.Id AS id,
    s.Data AS data,
    s.Metadata AS metadata,
    s.Concurrency AS concurrency
FROM {saga_table} AS s
WHERE s.Id = @id;
GO
