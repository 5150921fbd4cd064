CREATE OR REPLACE FUNCTION rowpost."read_delayed_bodies:{queue_key}"(
    p_delayed_keys text[], -- as browse_delayed returns them
    p_max_body_bytes integer DEFAULT NULL -- return at most so many bytes of a body; null: the whole body
) RETURNS TABLE (delayed_key text, body bytea)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Reads the bodies of delayed messages without moving them.
Atomicity: reads only.
Locking:   none.
*/
BEGIN
    RETURN QUERY
    SELECT
        d.id::text,
        CASE WHEN p_max_body_bytes IS NULL THEN d.body ELSE substring(d.body FOR p_max_body_bytes) END
    FROM {delayed_table} AS d
    WHERE d.id = ANY (ARRAY(
        SELECT k.key::uuid FROM unnest(p_delayed_keys) AS k (key) WHERE k.key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'));
END
$rowpost$;
