CREATE OR REPLACE FUNCTION rowpost.list_queues() RETURNS TABLE (
    queue_name text, queue_key text, catalog_name text, schema_name text, table_name text,
    kind text, body_string boolean, clustered boolean, delayed boolean, lease boolean, depth bigint
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the registered queues with a depth that is estimated from the server's metadata, never from a scan.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
BEGIN
    RETURN QUERY
    SELECT
        q.queue_name, q.queue_key, q.catalog_name, q.schema_name, q.table_name,
        q.kind, q.body_string, q.clustered, q.delayed, q.lease,
        pg_stat_get_live_tuples(to_regclass(format('%I.%I', q.schema_name, q.table_name)))
    FROM rowpost.queue AS q
    ORDER BY q.queue_name;
END
$rowpost$;
