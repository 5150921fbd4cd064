-- The column of the second correlation property, while sagas move from one property to another.
DO $rowpost$
BEGIN
    ALTER TABLE {saga_table} ADD COLUMN IF NOT EXISTS "{transitional_column}" {transitional_type} NULL;

    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_index AS i
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = '{saga_table}'::regclass AND a.attname = '{transitional_column}' AND i.indisunique AND i.indisvalid
    ) THEN
        CREATE UNIQUE INDEX ON {saga_table} ("{transitional_column}");
    END IF;
END
$rowpost$;
