-- What operators and readers may run on this saga. Endpoints are granted one by one: rowpost queue grant.
-- Babelfish: it chains no ownership, so that they need rights on the table as well.
IF OBJECT_ID(N'rowpost.[load_saga:{saga_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[load_saga:{saga_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[insert_saga:{saga_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[insert_saga:{saga_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[update_saga:{saga_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[update_saga:{saga_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[complete_saga:{saga_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[complete_saga:{saga_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[correlate_saga:{saga_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[correlate_saga:{saga_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[correlate_sagas:{saga_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[correlate_sagas:{saga_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[list_sagas:{saga_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[list_sagas:{saga_key}] TO rowpost_operator, rowpost_reader;
GO
IF OBJECT_ID(N'{saga_table}', N'U') IS NOT NULL
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON {saga_table} TO rowpost_operator;
    GRANT SELECT ON {saga_table} TO rowpost_reader;
END;
GO
