CREATE OR REPLACE FUNCTION rowpost.probe_transaction(p_transaction_id text) RETURNS TABLE (running boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns whether the coordinator of a transaction over several databases still runs and may still decide.
Atomicity: reads only. Read the decisions afterwards, in another statement: if it returned false, they are final.
Locking:   the transaction's advisory lock, shared, until the caller's transaction ends; it never waits.
*/
BEGIN
    RETURN QUERY SELECT NOT pg_try_advisory_xact_lock_shared(hashtextextended(p_transaction_id, 1919907696));
END
$rowpost$;
