CREATE OR REPLACE FUNCTION rowpost.probe_transaction(p_transaction_id text) RETURNS TABLE (running boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Says whether a transaction over several databases may still come to a decision: its coordinator has it open.
Atomicity: reads only. Read the decisions afterwards, in a statement of its own: what stands there then is final.
Locking:   the transaction's advisory lock, shared and never waited for, until the caller's transaction ends.
*/
BEGIN
    RETURN QUERY SELECT NOT pg_try_advisory_xact_lock_shared(hashtextextended(p_transaction_id, 1919907696));
END
$rowpost$;
