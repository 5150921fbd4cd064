CREATE OR REPLACE FUNCTION rowpost.register_queue(
    p_queue_key text,
    p_queue_name text,
    p_catalog_name text, -- null: this database
    p_schema_name text,
    p_table_name text,
    p_kind text, -- own, adopted or external
    p_body_string boolean,
    p_clustered boolean,
    p_delayed boolean, -- has a delayed table
    p_lease boolean DEFAULT NULL -- has a table of leases; null as false
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Registers a queue, or updates its entry.
Atomicity: in the caller's transaction.
Locking:   other registrations may wait until the caller commits, readers only for an entry that changes; only deployments and
           processes with a queue of their own call it.
*/
DECLARE
    v_other text;
BEGIN
    IF length(p_queue_name) > 400 OR length(p_queue_key) > 128 OR length(p_catalog_name) > 128
       OR length(p_schema_name) > 128 OR length(p_table_name) > 128 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP002', MESSAGE =
            'The queue cannot be registered: its name may have at most 400 characters, its key, schema, table and catalog 128 each.';
    END IF;

    IF coalesce(p_table_name, '') = '' OR coalesce(p_queue_key, '') = '' OR coalesce(p_queue_name, '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'RP002', MESSAGE = 'The queue cannot be registered: its name, key and table must be given.';
    END IF;

    SELECT q.queue_name INTO v_other
    FROM rowpost.queue AS q
    WHERE (q.queue_key = p_queue_key
           OR (q.schema_name = p_schema_name AND q.table_name = p_table_name
               AND q.catalog_name IS NOT DISTINCT FROM p_catalog_name))
      AND q.queue_name <> p_queue_name
    LIMIT 1;

    IF v_other IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP005', MESSAGE = format(
            'The queue ''%s'' would share its name, key or table with the queue ''%s''. Choose a name that differs in more than case.',
            p_queue_name, v_other);
    END IF;

    INSERT INTO rowpost.queue AS q
        (queue_key, queue_name, catalog_name, schema_name, table_name, kind, body_string, clustered, delayed, lease)
    VALUES
        (p_queue_key, p_queue_name, p_catalog_name, p_schema_name, p_table_name, p_kind, p_body_string, p_clustered, p_delayed,
         coalesce(p_lease, false))
    ON CONFLICT (queue_key) DO UPDATE
    SET kind = excluded.kind,
        body_string = excluded.body_string,
        clustered = excluded.clustered,
        delayed = excluded.delayed,
        lease = excluded.lease
    WHERE (q.kind, q.body_string, q.clustered, q.delayed, q.lease)
       <> (excluded.kind, excluded.body_string, excluded.clustered, excluded.delayed, excluded.lease);
END
$rowpost$;
