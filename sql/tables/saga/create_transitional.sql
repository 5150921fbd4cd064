-- The column of the second correlation property, while sagas move from one property to another.
IF COL_LENGTH(N'{saga_table}', N'{transitional_column}') IS NULL
    EXEC (N'ALTER TABLE {saga_table} ADD [{transitional_column}] {transitional_type} NULL;');
GO
IF NOT EXISTS
(
    SELECT 1
    FROM sys.index_columns AS ic
    WHERE ic.object_id = OBJECT_ID(N'{saga_table}', N'U')
      AND ic.key_ordinal = 1
      AND COL_NAME(ic.object_id, ic.column_id) = N'{transitional_column}'
)
    EXEC (
        N'CREATE UNIQUE NONCLUSTERED INDEX [Index_{transitional_column}] ON {saga_table} ([{transitional_column}])'
        + N' WHERE [{transitional_column}] IS NOT NULL;'
    );
GO
