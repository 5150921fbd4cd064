CREATE OR REPLACE FUNCTION rowpost."lease_message:{queue_key}"(
    p_row_version bigint,
    p_owner text, -- host, process and slot, at most 200 characters
    p_seconds integer -- until the lease expires, by this server's clock, 1 to 86400
) RETURNS TABLE (token uuid)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Moves one message by its row version to the table of leases, and returns its token; nothing if it is gone or another session has locked it.
Atomicity: in the caller's transaction. As soon as that commits, the caller holds the message without a transaction.
Locking:   skips the row if another session has locked it.
Order:     at most one row.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF p_seconds IS NULL OR p_seconds NOT BETWEEN 1 AND 86400 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE =
            'The message cannot be leased: the lease must last between 1 and 86400 seconds.';
    END IF;

    IF p_owner IS NULL OR length(p_owner) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The message cannot be leased: its owner must have 1 to 200 characters.';
    END IF;

    RETURN QUERY
    WITH taken AS (
        DELETE FROM {queue_table} AS q
        WHERE q.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {queue_table} AS c
            WHERE c.seq = p_row_version
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING q.id, q.expires, q.headers, q.body, q.seq
    )
    INSERT INTO {leased_table} AS l (token, id, expires, headers, body, seq, owner, leased_at, due)
    SELECT gen_random_uuid(), t.id, t.expires, t.headers, t.body, t.seq, p_owner, v_now, v_now + p_seconds * interval '1 second'
    FROM taken AS t
    RETURNING l.token;
END
$rowpost$;
