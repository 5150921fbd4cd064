SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[correlate_saga:{saga_key}]
    @id uniqueidentifier,
    @correlation_value nvarchar(4000) = NULL -- NULL: not known yet
AS
/*
Stores the second correlation value of an instance while sagas move from one correlation property to another.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the instance's row; waits for a transaction that stores the same value.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@correlation_value, N'.')) > 201
    THROW 51014, N'The correlation value cannot be stored: it is longer than 200 characters. Use a shorter one.', 1;

BEGIN TRY
    UPDATE s
    SET s.[{transitional_column}] = CAST(@correlation_value AS {transitional_type})
    FROM {saga_table} AS s WITH (ROWLOCK)
    WHERE s.Id = @id;
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51015, N'The second correlation value cannot be stored: another instance of this saga has it. Correct the state of one of them.', 1;

    THROW;
END CATCH;
GO
