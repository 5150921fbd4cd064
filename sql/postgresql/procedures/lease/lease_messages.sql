CREATE OR REPLACE FUNCTION rowpost."lease_messages:{queue_key}"(
    p_count integer, -- how many at most, 1 to 500
    p_after_row_version bigint, -- only rows with a higher row version; null: from the start of the queue
    p_owner text, -- host, process and slot, at most 200 characters
    p_seconds integer -- until the leases expire, by this server's clock, 1 to 86400
) RETURNS TABLE (id uuid, row_version bigint, expired boolean, headers text, body bytea, token uuid)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Moves the oldest messages that no other session has locked to the table of leases, and returns them with their tokens.
Atomicity: in the caller's transaction. As soon as that commits, the caller holds the messages without a transaction.
Locking:   skips rows that others lock (SKIP LOCKED); locks only the rows that it moves.
Order:     the oldest first, as receive_messages; returns them in no order.
Expired messages are leased too; the receiver drops them.
*/
DECLARE
    v_above CONSTANT bigint := coalesce(p_after_row_version, -9223372036854775808);
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of messages to lease must be between 1 and 500.';
    END IF;

    IF p_seconds IS NULL OR p_seconds NOT BETWEEN 1 AND 86400 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE =
            'The messages cannot be leased: the lease must last between 1 and 86400 seconds.';
    END IF;

    IF p_owner IS NULL OR length(p_owner) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The messages cannot be leased: their owner must have 1 to 200 characters.';
    END IF;

    RETURN QUERY
    WITH taken AS (
        DELETE FROM {queue_table} AS q
        WHERE q.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {queue_table} AS c
            WHERE c.seq > v_above
            ORDER BY c.seq
            LIMIT p_count
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING q.id, q.expires, q.headers, q.body, q.seq
    )
    INSERT INTO {leased_table} AS l (token, id, expires, headers, body, seq, owner, leased_at, due)
    SELECT gen_random_uuid(), t.id, t.expires, t.headers, t.body, t.seq, p_owner, v_now, v_now + p_seconds * interval '1 second'
    FROM taken AS t
    RETURNING l.id, l.seq, coalesce(l.expires <= v_now, false), l.headers, l.body, l.token;
END
$rowpost$;
