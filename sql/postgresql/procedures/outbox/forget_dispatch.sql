CREATE OR REPLACE FUNCTION rowpost.forget_dispatch(p_endpoint text, p_message_id text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Drops what record_dispatch wrote: the outbox has settled, nobody can send these operations again.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.dispatch.
*/
BEGIN
    DELETE FROM rowpost.dispatch AS d WHERE d.endpoint = p_endpoint AND d.message_id = p_message_id;
END
$rowpost$;
