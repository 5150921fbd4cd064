SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[insert_saga:{saga_key}]
    @id uniqueidentifier,
    @correlation_value nvarchar(4000),
    @data nvarchar(max), -- the state as JSON
    @metadata nvarchar(max), -- JSON object: Originator, OriginalMessageId
    @persistence_version varchar(46),
    @saga_type_version varchar(46)
AS
/*
Stores a new instance, unless another message has started the same saga.
Atomicity: one INSERT in the caller's transaction.
Locking:   the new row; waits for a transaction that stores the same correlation value.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@persistence_version, N'.')) > 24 OR LEN(CONCAT(@saga_type_version, N'.')) > 24
    THROW 51034, N'The saga cannot be stored: its two versions may have at most 23 characters each.', 1;

IF @correlation_value IS NULL OR LEN(CONCAT(@correlation_value, N'.')) > 201
    THROW 51014, N'The saga cannot be stored: its correlation value is missing or longer than 200 characters. Use another correlation value.', 1;

BEGIN TRY
    INSERT INTO {saga_table}
        (Id, Metadata, Data, PersistenceVersion, SagaTypeVersion, Concurrency, [{correlation_column}])
    VALUES
        (@id, @metadata, @data, @persistence_version, @saga_type_version, 1, CAST(@correlation_value AS {correlation_type}));
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() IN (2601, 2627)
        THROW 51015, N'The saga cannot be stored: another message has started it. A retry loads its state.', 1;

    THROW;
END CATCH;
GO
