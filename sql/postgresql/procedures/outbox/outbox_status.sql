CREATE OR REPLACE FUNCTION rowpost.outbox_status() RETURNS TABLE (
    records bigint, oldest_record_at timestamp, undispatched integer, oldest_undispatched_ms bigint, total_bytes bigint
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns the size of the outbox from the server's metadata, and how many messages have unsent operations, up to 10000.
Atomicity: reads only.
Locking:   none that lasts.
Rights:    runs as the owner, because the sizes need a right to the database's state that a reader does not have.
*/
DECLARE
    v_undispatched integer;
    v_oldest timestamp;
BEGIN
    SELECT count(*), min(head.handled_at) INTO v_undispatched, v_oldest
    FROM (
        SELECT o.handled_at
        FROM rowpost.outbox_operations AS p
        JOIN rowpost.outbox AS o ON o.endpoint = p.endpoint AND o.message_id = p.message_id
        ORDER BY o.handled_at
        LIMIT 10000
    ) AS head;

    RETURN QUERY
    SELECT
        pg_stat_get_live_tuples('rowpost.outbox'::regclass),
        (SELECT min(o.handled_at)::timestamp FROM rowpost.outbox AS o),
        v_undispatched,
        CASE WHEN v_oldest IS NOT NULL THEN greatest(0, extract(epoch FROM clock_timestamp() AT TIME ZONE 'UTC' - v_oldest) * 1000)::bigint END,
        pg_total_relation_size('rowpost.outbox'::regclass);
END
$rowpost$;
