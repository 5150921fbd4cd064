CREATE OR REPLACE FUNCTION rowpost."receive_message:{queue_key}"(
    p_row_version bigint
) RETURNS TABLE (id uuid, row_version bigint, expired boolean, headers text, body bytea)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Removes and returns one message by its row version; returns nothing if it is removed or another session has locked it.
Atomicity: one DELETE in the caller's transaction; a rollback returns the message to its place.
Locking:   skips the row if another session has locked it, and never waits.
Order:     at most one row.
*/
BEGIN
    RETURN QUERY
    DELETE FROM {queue_table} AS q
    WHERE q.ctid = ANY (ARRAY(
        SELECT c.ctid
        FROM {queue_table} AS c
        WHERE c.seq = p_row_version
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING
        q.id,
        q.seq::bigint,
        coalesce(q.expires <= clock_timestamp() AT TIME ZONE 'UTC', false),
        q.headers,
        q.body;
END
$rowpost$;
