-- The instances of one type of saga, with the same columns as the table of NServiceBus.Persistence.Sql.
CREATE TABLE IF NOT EXISTS {saga_table}
(
    "Id" uuid NOT NULL PRIMARY KEY,
    "Metadata" text NOT NULL,
    "Data" jsonb NOT NULL,
    "PersistenceVersion" character varying(23) NULL,
    "SagaTypeVersion" character varying(23) NULL,
    "Concurrency" integer NOT NULL,
    "{correlation_column}" {correlation_type} NULL
);

DO $rowpost$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = '{saga_table}'::regclass AND a.attname = 'Concurrency' AND NOT a.attisdropped
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP016',
            MESSAGE = 'There is a table {saga_table}, and it is not a saga''s: give the saga another table.';
    END IF;

    -- The table was made for another correlation property.
    ALTER TABLE {saga_table} ADD COLUMN IF NOT EXISTS "{correlation_column}" {correlation_type} NULL;

    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = '{saga_table}'::regclass AND a.attname = '{correlation_column}'
          AND format_type(a.atttypid, a.atttypmod) = '{correlation_type}'
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP016',
            MESSAGE = 'The column {correlation_column} of {saga_table} is not {correlation_type}: correlate by another property, or change the column.';
    END IF;

    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_index AS i
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = '{saga_table}'::regclass AND a.attname = '{correlation_column}' AND i.indisunique AND i.indisvalid
    ) THEN
        CREATE UNIQUE INDEX ON {saga_table} ("{correlation_column}");
    END IF;

    IF EXISTS (SELECT FROM {saga_table} AS s WHERE s."{correlation_column}" IS NULL) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014',
            MESSAGE = 'Instances have no {correlation_column}: declare it as transitional first, and run rowpost sagas correlate.';
    END IF;
END
$rowpost$;
