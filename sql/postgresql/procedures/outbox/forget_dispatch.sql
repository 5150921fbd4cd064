CREATE OR REPLACE FUNCTION rowpost.forget_dispatch(p_endpoint text, p_message_id text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Deletes the record of record_dispatch after the outbox has deleted the operations, so that nobody can send them again.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.dispatch.
*/
BEGIN
    PERFORM rowpost._require_receiver((SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = p_endpoint), p_endpoint);

    DELETE FROM rowpost.dispatch AS d WHERE d.endpoint = p_endpoint AND d.message_id = p_message_id;
END
$rowpost$;
