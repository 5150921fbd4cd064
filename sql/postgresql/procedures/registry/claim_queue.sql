CREATE OR REPLACE FUNCTION rowpost.claim_queue(p_queue_name text) RETURNS TABLE (claimed boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Makes a session the only one of all that ask to receive from a queue; it stays so until it ends.
Atomicity: no transaction is needed and none is touched: the lock belongs to the session.
Locking:   an advisory lock that nobody waits for, released after the session's last transaction is rolled back.
*/
BEGIN
    RETURN QUERY
    SELECT pg_try_advisory_lock(hashtextextended('rowpost queue ' || rowpost._resolve_queue(p_queue_name), 0));
END
$rowpost$;
