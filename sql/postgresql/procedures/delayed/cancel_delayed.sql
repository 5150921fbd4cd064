CREATE OR REPLACE FUNCTION rowpost."cancel_delayed:{queue_key}"(
    p_delayed_key text -- as browse_delayed returns it
) RETURNS TABLE (due timestamp, headers text, body bytea)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Removes and returns a delayed message, unless a mover has locked it.
Atomicity: one DELETE in the caller's transaction; a rollback returns the message to its place.
Locking:   one row.
*/
DECLARE
    v_id CONSTANT uuid := CASE WHEN p_delayed_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_delayed_key::uuid END;
BEGIN
    RETURN QUERY
    DELETE FROM {delayed_table} AS d
    WHERE d.id IN (SELECT c.id FROM {delayed_table} AS c WHERE c.id = v_id FOR UPDATE SKIP LOCKED)
    RETURNING d.due AT TIME ZONE 'UTC', d.headers, d.body;
END
$rowpost$;
