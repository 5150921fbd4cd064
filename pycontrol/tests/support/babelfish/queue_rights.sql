-- Babelfish chains no ownership: the callers of procedures need rights on the tables that these use. Those of another database
-- are granted there.
IF OBJECT_ID(N'{queue_table}', N'U') IS NOT NULL
   AND EXISTS (SELECT 1 FROM rowpost.queue AS q WHERE q.queue_key = N'{queue_key}' AND q.catalog_name IS NULL)
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON {queue_table} TO rowpost_operator;
    GRANT SELECT ON {queue_table} TO rowpost_reader, rowpost_body_reader;

    -- describe_stream reads the sequence of the identity, which has rights of its own in PostgreSQL
    DECLARE @relation nvarchar(400) = LOWER(CONCAT(N'"', DB_NAME(), N'_', N'{schema_name}', N'"."', N'{table_name}', N'"'));
    DECLARE @sequence nvarchar(400) = pg_catalog.pg_get_serial_sequence(@relation, N'rowversion');
    DECLARE @name nvarchar(400) = REPLACE(SUBSTRING(@sequence, CHARINDEX(N'.', @sequence) + 1, 400), N'"', N'');
    DECLARE @grant nvarchar(1000) = CONCAT(N'GRANT SELECT ON [{schema_name}].[', @name, N'] TO rowpost_operator, rowpost_reader, rowpost_body_reader;');
    EXEC sys.sp_executesql @grant;
END;
GO
IF OBJECT_ID(N'rowpost.[delay_message:{queue_key}]', N'P') IS NOT NULL
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON {delayed_table} TO rowpost_operator;
    GRANT SELECT ON {delayed_table} TO rowpost_reader, rowpost_body_reader;
END;
GO
IF OBJECT_ID(N'rowpost.[lease_messages:{queue_key}]', N'P') IS NOT NULL
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON {leased_table} TO rowpost_operator;
    GRANT SELECT ON {leased_table} TO rowpost_reader, rowpost_body_reader;
END;
GO
