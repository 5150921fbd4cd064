SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.register_saga
    @saga_key nvarchar(256),
    @saga_name nvarchar(800),
    @schema_name nvarchar(256),
    @table_name nvarchar(256),
    @correlation_name nvarchar(256),
    @correlation_type varchar(20), -- string, integer, uuid or timestamp
    @transitional_name nvarchar(256) = NULL,
    @transitional_type varchar(20) = NULL
AS
/*
Registers a type of saga, or updates its entry.
Atomicity: in the caller's transaction.
Locking:   the registry of sagas, until the caller commits; only deployments call it.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@saga_name, N'.')) > 401 OR LEN(CONCAT(@saga_key, N'.')) > 129 OR LEN(CONCAT(@schema_name, N'.')) > 129
   OR LEN(CONCAT(@table_name, N'.')) > 129 OR LEN(CONCAT(@correlation_name, N'.')) > 129
   OR LEN(CONCAT(@transitional_name, N'.')) > 129
   OR LEN(CONCAT(@correlation_type, N'.')) > 11 OR LEN(CONCAT(@transitional_type, N'.')) > 11
    THROW 51034, N'The saga cannot be registered: its name may have at most 400 characters, its key, schema, table, columns 128 each, and types 10.', 1;

DECLARE @message nvarchar(2048);

SELECT TOP (1) @message = CONCAT(N'The table of the saga ''', @saga_name, N''' is that of the queue ''', q.queue_name, N'''. Choose another name.')
FROM rowpost.queue AS q
WHERE q.schema_name = @schema_name
  AND q.table_name = @table_name
  AND q.catalog_name IS NULL;

SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
IF @message IS NOT NULL
    THROW 51005, @message, 1;

UPDATE s
SET s.correlation_name = @correlation_name,
    s.correlation_type = @correlation_type,
    s.transitional_name = @transitional_name,
    s.transitional_type = @transitional_type
FROM rowpost.saga AS s WITH (UPDLOCK, HOLDLOCK)
WHERE s.saga_key = @saga_key;

IF @@ROWCOUNT = 0
    INSERT INTO rowpost.saga
        (saga_key, saga_name, schema_name, table_name, correlation_name, correlation_type, transitional_name, transitional_type)
    VALUES
        (@saga_key, @saga_name, @schema_name, @table_name, @correlation_name, @correlation_type, @transitional_name, @transitional_type);
GO
