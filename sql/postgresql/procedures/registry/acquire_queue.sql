CREATE OR REPLACE FUNCTION rowpost.acquire_queue(p_queue_name text) RETURNS TABLE (acquired boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Makes this session the single active consumer of a queue until it ends, if no other session is.
Atomicity: needs no transaction and changes none: the lock belongs to the session.
Locking:   an advisory lock; nobody waits for it. It is released after the session's last transaction is rolled back.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
BEGIN
    PERFORM rowpost._require_receiver(v_queue_key, p_queue_name);

    RETURN QUERY
    SELECT pg_try_advisory_lock(hashtextextended('rowpost queue ' || v_queue_key, 0));
END
$rowpost$;
