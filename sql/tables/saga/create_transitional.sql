-- The column of the second correlation property, while sagas move from one property to another.
IF COL_LENGTH(N'{saga_table}', N'{transitional_column}') IS NULL
    EXEC (N'ALTER TABLE {saga_table} ADD [{transitional_column}] {transitional_type} NULL;');
GO
DECLARE @message nvarchar(2048);
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
  AND COL_NAME(ic.object_id, ic.column_id) = N'{transitional_column}';

IF @enabled IS NULL AND @disabled IS NOT NULL
BEGIN
    SET @message = REPLACE(
        CONCAT(N'The index ', @disabled, N' of {saga_table} is disabled and keeps no value unique. Run: ALTER INDEX ', @disabled, N' ON {saga_table} REBUILD;'),
        N'%', N'%%'
    );
    THROW 51016, @message, 1;
END;

-- Azure SQL Database (5), Managed Instance (8) and Enterprise (3) build it while others use the table.
DECLARE @online nvarchar(30) = CASE WHEN CAST(SERVERPROPERTY(N'EngineEdition') AS int) IN (3, 5, 8) THEN N' WITH (ONLINE = ON)' ELSE N'' END;
IF @enabled IS NULL
    EXEC (
        N'CREATE UNIQUE NONCLUSTERED INDEX [Index_{transitional_column}] ON {saga_table} ([{transitional_column}])'
        + N' WHERE [{transitional_column}] IS NOT NULL' + @online + N';'
    );
GO
