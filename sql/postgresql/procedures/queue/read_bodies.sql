CREATE OR REPLACE FUNCTION rowpost."read_bodies:{queue_key}"(
    p_row_versions text[], -- as browse_messages and search_messages return them
    p_max_body_bytes integer DEFAULT NULL -- return at most so many bytes of a body; null: the whole body
) RETURNS TABLE (row_version bigint, body bytea)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Reads the bodies of messages without receiving them.
Atomicity: reads only.
Locking:   none; returns rows that receivers lock, too.
*/
BEGIN
    RETURN QUERY
    SELECT
        q.seq::bigint,
        CASE WHEN p_max_body_bytes IS NULL THEN q.body ELSE substring(q.body FOR p_max_body_bytes) END
    FROM {queue_table} AS q
    WHERE q.seq = ANY (p_row_versions::bigint[]);
END
$rowpost$;
