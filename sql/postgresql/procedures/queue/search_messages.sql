CREATE OR REPLACE FUNCTION rowpost."search_messages:{queue_key}"(
    p_text text, -- part of the headers as they are stored, 1 to 200 characters
    p_count integer, -- how many messages to look through, 1 to 100000
    p_id uuid DEFAULT NULL, -- the row's id: finds this message whatever its headers are
    p_below_row_version bigint DEFAULT NULL -- only rows with a lower row version; null: from the newest one on
) RETURNS TABLE (
    looked_to bigint, id uuid, row_version bigint, expired boolean, expires timestamp, headers text, body_bytes bigint
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Finds messages by a part of their headers, or by the row's id. It looks through a bounded number of messages, and says at which row version it stopped.
Atomicity: reads only.
Locking:   none; returns rows that receivers lock, too.
Order:     by seq, the newest first.
If it finds nothing, the only row has no values but looked_to. It returns up to 1000 messages.
*/
DECLARE
    v_below CONSTANT bigint := coalesce(p_below_row_version, 9223372036854775807);
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    v_lowest bigint;
    v_looked integer;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to look through must be between 1 and 100000.';
    END IF;

    IF p_text IS NULL OR length(p_text) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The text to search for must have 1 to 200 characters.';
    END IF;

    SELECT min(s.seq), count(*)
    INTO v_lowest, v_looked
    FROM (SELECT q.seq FROM {queue_table} AS q WHERE q.seq < v_below ORDER BY q.seq DESC LIMIT p_count) AS s;

    RETURN QUERY
    SELECT
        CASE WHEN v_looked = p_count THEN v_lowest END,
        f.id,
        f.seq::bigint,
        CASE WHEN f.seq IS NOT NULL THEN coalesce(f.expires <= v_now, false) END,
        f.expires,
        f.headers,
        CASE WHEN f.seq IS NOT NULL THEN coalesce(octet_length(f.body), 0)::bigint END
    FROM (VALUES (1)) AS one (x)
    LEFT JOIN LATERAL
    (
        SELECT q.id, q.seq, q.expires, q.headers, q.body
        FROM {queue_table} AS q
        WHERE q.seq >= v_lowest AND q.seq < v_below AND (q.id = p_id OR position(p_text IN q.headers) > 0)
        ORDER BY q.seq DESC
        LIMIT 1000
    ) AS f ON true;
END
$rowpost$;
