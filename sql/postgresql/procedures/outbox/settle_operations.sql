CREATE OR REPLACE FUNCTION rowpost.settle_operations(p_endpoint text, p_message_id text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Deletes the operations of a handled message after they were sent.
Atomicity: in the caller's transaction.
Locking:   the message's rows; the record before the operations, as clean_outbox reads them.
If sending took more than an hour, the retention time of the message starts now.
*/
BEGIN
    UPDATE rowpost.outbox AS o
    SET handled_at = clock_timestamp() AT TIME ZONE 'UTC'
    WHERE o.endpoint = p_endpoint
      AND o.message_id = p_message_id
      AND o.handled_at < clock_timestamp() AT TIME ZONE 'UTC' - interval '1 hour';

    DELETE FROM rowpost.outbox_operations AS p
    WHERE p.endpoint = p_endpoint AND p.message_id = p_message_id;
END
$rowpost$;
