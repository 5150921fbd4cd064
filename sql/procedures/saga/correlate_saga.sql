SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[correlate_saga:{saga_key}]
    @id uniqueidentifier,
    @correlation_value nvarchar(4000) = NULL -- NULL: not known yet
AS
/*
Writes an instance's second correlation value, while sagas move from one correlation to another.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the instance's row; waits for a transaction that is storing the same value.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@correlation_value, N'.')) > 201
    THROW 51014, N'A correlation value has at most 200 characters.', 1;

BEGIN TRY
    UPDATE s
    SET s.[{transitional_column}] = CAST(@correlation_value AS {transitional_type})
    FROM {saga_table} AS s WITH (ROWLOCK)
    WHERE s.Id = @id;
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51015, N'Another instance has this second correlation value.', 1;

    THROW;
END CATCH;
GO
