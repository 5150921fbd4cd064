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
BEGIN
    PERFORM rowpost._require_receiver(rowpost._queue_at(p_queue_address), p_queue_address);
END
$rowpost$;
