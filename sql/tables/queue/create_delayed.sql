-- Messages that are not due yet, with the same columns as the NServiceBus transport's table.
IF OBJECT_ID(N'{delayed_table}', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE {delayed_table}
    (
        Headers nvarchar(max) NOT NULL,
        Body varbinary(max) NULL,
        Due datetime NOT NULL,
        RowVersion bigint IDENTITY (1, 1) NOT NULL
    );

    -- Otherwise a mover of many messages would lock the table, and senders of delayed messages would wait.
    ALTER TABLE {delayed_table} SET (LOCK_ESCALATION = DISABLE);
END;
GO
IF NOT EXISTS
(
    SELECT 1
    FROM sys.index_columns AS ic
    WHERE ic.object_id = OBJECT_ID(N'{delayed_table}', N'U')
      AND ic.key_ordinal = 1
      AND COL_NAME(ic.object_id, ic.column_id) = N'Due'
)
    CREATE NONCLUSTERED INDEX Index_Due ON {delayed_table} (Due);
GO
