-- Messages that are not due yet, with the same columns as the NServiceBus transport's table. A table that is there already
-- stays as it is.
DO $rowpost$
BEGIN
    IF to_regclass('{delayed_table}') IS NULL THEN
        CREATE TABLE {delayed_table}
        (
            id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
            headers text NOT NULL,
            body bytea NULL,
            due timestamptz NOT NULL
        );

        CREATE INDEX ON {delayed_table} (due);
    END IF;
END
$rowpost$;
