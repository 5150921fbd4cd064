CREATE OR REPLACE FUNCTION rowpost._require_subscriber(
    p_queue_address text -- as it stands in the subscription table
) RETURNS void
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Raises an error if the caller may neither receive from the queue of a subscription nor operate queues.
Atomicity: reads only.
Locking:   none that lasts.
*/
DECLARE
    v_queue_key text;
BEGIN
    SELECT min(q.queue_key) INTO v_queue_key
    FROM rowpost.queue AS q
    WHERE p_queue_address IN (
        q.queue_name,
        q.table_name || '@[' || replace(q.schema_name, ']', ']]') || ']',
        format('"%s"."%s"', replace(q.schema_name, '"', '""'), replace(q.table_name, '"', '""'))
    );

    PERFORM rowpost._require_receiver(v_queue_key, p_queue_address);
END
$rowpost$;
