SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[correlate_sagas:{saga_key}]
    @count int -- instances at most, 1 to 1000
AS
/*
Stores the second correlation value of instances that have none, if their states contain the value.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the rows that it writes; waits for a session that has locked one. Versions of states do not change.
Order:     one row: how many were written, and how many instances still have no second correlation value.
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
      AND JSON_VALUE(s.Data, N'$."{transitional_name}"') <> N''
      AND
      (
          LEN(CONCAT(JSON_VALUE(s.Data, N'$."{transitional_name}"'), N'.')) > 201
          OR TRY_CAST(JSON_VALUE(s.Data, N'$."{transitional_name}"') AS {transitional_type}) IS NULL
      )
)
    THROW 51014, N'The second correlation cannot be stored: a {transitional_name} is no {transitional_type}, or longer than 200 characters. Correct it.', 1;

BEGIN TRY
    UPDATE TOP (@count) s
    SET s.[{transitional_column}] = CAST(JSON_VALUE(s.Data, N'$."{transitional_name}"') AS {transitional_type})
    FROM {saga_table} AS s WITH (ROWLOCK)
    WHERE s.[{transitional_column}] IS NULL
      AND JSON_VALUE(s.Data, N'$."{transitional_name}"') <> N'';

    SET @correlated = @@ROWCOUNT;
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51015, N'The second correlation cannot be stored: two instances have the same {transitional_name}. Correct the state of one of them.', 1;

    THROW;
END CATCH;

SELECT
    @correlated AS correlated,
    COUNT(*) AS missing
FROM {saga_table} AS s
WHERE s.[{transitional_column}] IS NULL;
GO
