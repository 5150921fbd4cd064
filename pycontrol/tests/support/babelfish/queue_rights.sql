-- Babelfish chains no ownership: the callers of procedures need rights on the tables that these use.
IF OBJECT_ID(N'{queue_table}', N'U') IS NOT NULL
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON {queue_table} TO rowpost_operator;
    GRANT SELECT ON {queue_table} TO rowpost_reader;
END;
GO
IF OBJECT_ID(N'rowpost.[delay_message:{queue_key}]', N'P') IS NOT NULL
    GRANT SELECT, INSERT, UPDATE, DELETE ON {delayed_table} TO rowpost_operator;
GO
