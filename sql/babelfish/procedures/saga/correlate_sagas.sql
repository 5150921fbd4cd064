SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[correlate_sagas:{saga_key}]
    @count int -- instances at most, 1 to 1000
AS
/*
Writes the second correlation of instances that have none, as far as their states hold the value, while sagas move.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the rows that it writes; waits for whoever holds one. Versions of states stay as they are.
Order:     one row: how many were written, and how many instances have no second correlation after that.
Babelfish: JSON_VALUE takes JSON's null for the word null.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @correlated int;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of sagas to correlate must be between 1 and 1000.', 1;

IF EXISTS
(
    SELECT 1
    FROM {saga_table} AS s
    WHERE s.[{transitional_column}] IS NULL
      AND JSON_VALUE(s.Data, N'$."{transitional_name}"') NOT IN (N'', N'null')
      AND
      (
          LEN(CONCAT(JSON_VALUE(s.Data, N'$."{transitional_name}"'), N'.')) > 201
          OR TRY_CAST(JSON_VALUE(s.Data, N'$."{transitional_name}"') AS {transitional_type}) IS NULL
      )
)
    THROW 51014, N'The state of an instance has a {transitional_name} that is no {transitional_type}, or longer than 200 characters.', 1;

BEGIN TRY
    UPDATE TOP (@count) s
    SET s.[{transitional_column}] = CAST(JSON_VALUE(s.Data, N'$."{transitional_name}"') AS {transitional_type})
    FROM {saga_table} AS s WITH (ROWLOCK)
    WHERE s.[{transitional_column}] IS NULL
      AND JSON_VALUE(s.Data, N'$."{transitional_name}"') NOT IN (N'', N'null');

    SET @correlated = @@ROWCOUNT;
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51015, N'The states of two instances have the same {transitional_name}.', 1;

    THROW;
END CATCH;

SELECT
    @correlated AS correlated,
    COUNT(*) AS missing
FROM {saga_table} AS s
WHERE s.[{transitional_column}] IS NULL;
GO
