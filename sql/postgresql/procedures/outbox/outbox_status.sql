CREATE OR REPLACE FUNCTION rowpost.outbox_status(
    p_endpoints text[] DEFAULT NULL -- whose unsent messages are counted; others count as foreign; null: all, none is foreign
) RETURNS TABLE (
    records bigint, oldest_record_at timestamp, undispatched integer, oldest_undispatched_ms bigint, total_bytes bigint, foreign_undispatched integer
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns the size of the outbox from the server's metadata, and how many messages have unsent operations, up to 10000.
Those of other endpoints are counted separately, up to 10000 too.
Atomicity: reads only.
Locking:   none that lasts.
Rights:    runs as the owner, because the sizes need a right to the database's state that a reader does not have.
*/
DECLARE
    v_undispatched integer;
    v_oldest timestamp;
    v_foreign integer;
BEGIN
    SELECT count(*), min(head.handled_at) INTO v_undispatched, v_oldest
    FROM (
        SELECT o.handled_at
        FROM rowpost.outbox_operations AS p
        JOIN rowpost.outbox AS o ON o.endpoint = p.endpoint AND o.message_id = p.message_id
        WHERE p_endpoints IS NULL OR p.endpoint = ANY (p_endpoints)
        ORDER BY o.handled_at
        LIMIT 10000
    ) AS head;

    SELECT count(*) INTO v_foreign
    FROM (SELECT FROM rowpost.outbox_operations AS p WHERE p.endpoint <> ALL (p_endpoints) LIMIT 10000) AS others;

    RETURN QUERY
    SELECT
        pg_stat_get_live_tuples('rowpost.outbox'::regclass),
        (SELECT min(o.handled_at)::timestamp FROM rowpost.outbox AS o),
        v_undispatched,
        CASE WHEN v_oldest IS NOT NULL THEN greatest(0, extract(epoch FROM clock_timestamp() AT TIME ZONE 'UTC' - v_oldest) * 1000)::bigint END,
        pg_total_relation_size('rowpost.outbox'::regclass),
        v_foreign;
END
$rowpost$;
