CREATE OR REPLACE FUNCTION rowpost.list_undispatched(
    p_seconds integer, -- handled longer ago than this
    p_count integer, -- how many at most, 1 to 1000
    p_endpoints text[] DEFAULT NULL, -- of these only; null: of all
    p_after_ms bigint DEFAULT NULL, -- with the next two: handled_ms, endpoint and id of the last message of the page before; null: from the oldest
    p_after_endpoint text DEFAULT NULL,
    p_after_message_id text DEFAULT NULL
) RETURNS TABLE (endpoint text, message_id text, age_ms bigint, handled_ms bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists handled messages with operations that have not been sent for some time.
Atomicity: reads only.
Locking:   skips messages that another session has locked.
Order:     the oldest first, then by endpoint and id, so that a page begins after the last message of the one before.
*/
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to list must be between 1 and 1000.';
    END IF;

    IF p_seconds IS NULL OR p_seconds < 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The age must be 0 seconds or more.';
    END IF;

    RETURN QUERY
    SELECT
        p.endpoint, p.message_id, (extract(epoch FROM clock_timestamp() AT TIME ZONE 'UTC' - o.handled_at) * 1000)::bigint,
        (extract(epoch FROM o.handled_at) * 1000)::bigint
    FROM rowpost.outbox_operations AS p
    JOIN rowpost.outbox AS o ON o.endpoint = p.endpoint AND o.message_id = p.message_id
    WHERE o.handled_at < clock_timestamp() AT TIME ZONE 'UTC' - p_seconds * interval '1 second'
      AND (p_endpoints IS NULL OR p.endpoint = ANY (p_endpoints))
      AND (
        p_after_ms IS NULL
        OR ((extract(epoch FROM o.handled_at) * 1000)::bigint, p.endpoint, p.message_id) > (p_after_ms, p_after_endpoint, p_after_message_id)
    )
    ORDER BY o.handled_at, p.endpoint, p.message_id
    LIMIT p_count
    FOR UPDATE OF p SKIP LOCKED;
END
$rowpost$;
