CREATE OR REPLACE FUNCTION rowpost."receive_due_messages:{queue_key}"(
    p_count integer -- how many at most, 1 to 500
) RETURNS TABLE (due timestamp, headers text, body bytea)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Removes and returns due messages that have the header ForwardDestination, so that the mover forwards them.
Atomicity: one DELETE in the caller's transaction; a rollback returns the messages to their places.
Locking:   skips rows that others lock and never waits.
Order:     selects the next ones by due time; returns them in no order.
*/
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to receive must be between 1 and 500.';
    END IF;

    RETURN QUERY
    DELETE FROM {delayed_table} AS d
    WHERE d.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM {delayed_table} AS c
        WHERE c.due <= clock_timestamp()
          AND c.headers LIKE '%"NServiceBus.SqlServer.ForwardDestination"%'
        ORDER BY c.due
        LIMIT p_count
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING d.due AT TIME ZONE 'UTC', d.headers, d.body;
END
$rowpost$;
