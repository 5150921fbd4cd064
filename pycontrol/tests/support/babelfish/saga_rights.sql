-- Babelfish chains no ownership: the callers of procedures need rights on the tables that these use.
IF OBJECT_ID(N'{saga_table}', N'U') IS NOT NULL
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON {saga_table} TO rowpost_operator;
    GRANT SELECT ON {saga_table} TO rowpost_reader, rowpost_body_reader;
END;
GO
