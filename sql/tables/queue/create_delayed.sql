-- Messages that are not due yet, with the same columns as the NServiceBus transport's table. A table that is there already
-- stays as it is.
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

    CREATE NONCLUSTERED INDEX Index_Due ON {delayed_table} (Due);
END;
GO
