-- The publication of the queue's INSERTs, which a stream with mode=log reads by a replication slot. It stores nothing, costs
-- senders nothing, and publishes to nobody who does not ask for it.
DO $rowpost$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication AS p WHERE p.pubname = 'rowpost_log:{queue_key}') THEN
        CREATE PUBLICATION "rowpost_log:{queue_key}" FOR TABLE {queue_table} WITH (publish = 'insert');
    END IF;

    -- a table that was dropped and created again is not in it
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_publication_rel AS r
        JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
        WHERE p.pubname = 'rowpost_log:{queue_key}' AND r.prrelid = '{queue_table}'::regclass
    ) THEN
        ALTER PUBLICATION "rowpost_log:{queue_key}" ADD TABLE {queue_table};
    END IF;
END
$rowpost$;

ALTER PUBLICATION "rowpost_log:{queue_key}" SET (publish = 'insert');
