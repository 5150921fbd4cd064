-- Messages that are not due yet, with the same columns as the NServiceBus transport's table.
CREATE TABLE IF NOT EXISTS {delayed_table}
(
    id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    headers text NOT NULL,
    body bytea NULL,
    due timestamptz NOT NULL
);

DO $rowpost$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_index AS i
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = '{delayed_table}'::regclass AND a.attname = 'due' AND i.indisvalid
    ) THEN
        CREATE INDEX ON {delayed_table} (due);
    END IF;
END
$rowpost$;
