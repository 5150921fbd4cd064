CREATE OR REPLACE FUNCTION rowpost.forget_failure(
    p_queue_key text,
    p_id uuid -- the row's id
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Deletes the count of a message that was handled or moved to the error queue.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.failure.
*/
BEGIN
    PERFORM rowpost._require_receiver(p_queue_key, p_queue_key);
    DELETE FROM rowpost.failure AS f WHERE f.queue_key = p_queue_key AND f.id = p_id;
END
$rowpost$;
