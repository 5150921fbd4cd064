CREATE OR REPLACE FUNCTION rowpost.elect_cleaner() RETURNS TABLE (elected boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Elects one session of all that ask to clean this database's outbox; it stays elected until it ends.
Atomicity: no transaction is needed and none is touched: the lock belongs to the session.
Locking:   an advisory lock that nobody waits for.
*/
BEGIN
    RETURN QUERY SELECT pg_try_advisory_lock(hashtextextended('rowpost outbox', 0));
END
$rowpost$;
