-- The instances of one type of saga, with the same columns as the table of NServiceBus.Persistence.Sql.
IF OBJECT_ID(N'{saga_table}', N'U') IS NULL
    CREATE TABLE {saga_table}
    (
        -- NServiceBus's script lets the server choose the name
        Id uniqueidentifier NOT NULL CONSTRAINT [key:{saga_key}] PRIMARY KEY,
        Metadata nvarchar(max) NOT NULL,
        Data nvarchar(max) NOT NULL,
        PersistenceVersion varchar(23) NOT NULL,
        SagaTypeVersion varchar(23) NOT NULL,
        Concurrency int NOT NULL,
        [{correlation_column}] {correlation_type} NULL
    );
GO
-- THROW reads % as the start of a placeholder.
DECLARE @message nvarchar(2048) = REPLACE(N'There is a table {saga_table}, and it is not a saga''s: give the saga another table.', N'%', N'%%');

IF COL_LENGTH(N'{saga_table}', N'Concurrency') IS NULL
    THROW 51016, @message, 1;

-- The table was made for another correlation property.
IF COL_LENGTH(N'{saga_table}', N'{correlation_column}') IS NULL
    EXEC (N'ALTER TABLE {saga_table} ADD [{correlation_column}] {correlation_type} NULL;');
GO
DECLARE @message nvarchar(2048) = REPLACE(
    N'The column {correlation_column} of {saga_table} is not {correlation_type}: correlate by another property, or change the column.', N'%', N'%%'
);

IF NOT EXISTS
(
    SELECT 1
    FROM sys.columns AS c
    WHERE c.object_id = OBJECT_ID(N'{saga_table}', N'U')
      AND c.name = N'{correlation_column}'
      AND LEFT('{correlation_type}', CHARINDEX('(', '{correlation_type}' + '(') - 1) = TYPE_NAME(c.user_type_id)
)
    THROW 51016, @message, 1;

-- An index that is disabled keeps no value unique. Its build takes as long as the table is large, and is left to a person.
DECLARE @enabled int, @disabled nvarchar(300);

SELECT
    @enabled = MAX(CASE WHEN i.is_disabled = 0 THEN 1 END),
    @disabled = MAX(CASE WHEN i.is_disabled = 1 THEN QUOTENAME(i.name) COLLATE database_default END)
FROM sys.index_columns AS ic
INNER JOIN sys.indexes AS i
    ON ic.object_id = i.object_id AND ic.index_id = i.index_id AND i.is_unique = 1
WHERE ic.object_id = OBJECT_ID(N'{saga_table}', N'U')
  AND ic.key_ordinal = 1
  AND COL_NAME(ic.object_id, ic.column_id) = N'{correlation_column}';

IF @enabled IS NULL AND @disabled IS NOT NULL
BEGIN
    SET @message = REPLACE(
        CONCAT(N'The index ', @disabled, N' of {saga_table} is disabled and keeps no value unique. Run: ALTER INDEX ', @disabled, N' ON {saga_table} REBUILD;'),
        N'%', N'%%'
    );
    THROW 51016, @message, 1;
END;

IF @enabled IS NULL
BEGIN
    -- Azure SQL Database (5), Managed Instance (8) and Enterprise (3) build it while others use the table.
    IF CAST(SERVERPROPERTY(N'EngineEdition') AS int) IN (3, 5, 8)
        CREATE UNIQUE NONCLUSTERED INDEX [Index_{correlation_column}] ON {saga_table} ([{correlation_column}])
        WHERE [{correlation_column}] IS NOT NULL WITH (ONLINE = ON);
    ELSE
        CREATE UNIQUE NONCLUSTERED INDEX [Index_{correlation_column}] ON {saga_table} ([{correlation_column}])
        WHERE [{correlation_column}] IS NOT NULL;
END;
GO
DECLARE @message nvarchar(2048) = REPLACE(
    N'Instances have no {correlation_column}: declare it as transitional first, and run rowpost sagas correlate.', N'%', N'%%'
);

IF EXISTS (SELECT 1 FROM {saga_table} AS s WHERE s.[{correlation_column}] IS NULL)
    THROW 51014, @message, 1;
GO
