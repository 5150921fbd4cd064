CREATE OR REPLACE FUNCTION rowpost."return_expired:{queue_key}"(
    p_count integer, -- how many at most, 1 to 500
    p_row_version bigint DEFAULT NULL, -- with p_owner: this message, although its lease is not due
    p_owner text DEFAULT NULL -- with p_row_version: how the owner of the lease begins, because its process has ended
) RETURNS TABLE (id uuid, row_version bigint, expired boolean, headers text, body bytea, owner text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
AS $rowpost$
/*
Moves messages whose leases have expired, or whose owner has ended, back to their places in the queue, and returns them.
Of a process that has ended, it moves a message by its row version, although its lease is not due.
Atomicity: in the caller's transaction. A rollback leaves the messages leased.
Locking:   skips rows that others lock (SKIP LOCKED); locks only the rows that it moves.
Order:     the longest expired first; returns them in no order. The messages get their row versions back.
Rights:    runs as the owner, as all procedures of a queue do.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 500 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of leases to return must be between 1 and 500.';
    END IF;

    RETURN QUERY
    WITH removed AS (
        DELETE FROM {leased_table} AS l
        WHERE l.ctid = ANY (ARRAY(
            SELECT c.ctid
            FROM {leased_table} AS c
            WHERE CASE WHEN p_row_version IS NULL THEN c.due <= v_now ELSE c.seq = p_row_version AND starts_with(c.owner, p_owner) END
            ORDER BY c.due
            LIMIT p_count
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING l.id, l.expires, l.headers, l.body, l.seq, l.owner
    ),
    stored AS (
        INSERT INTO {queue_table} (id, expires, headers, body, seq)
        OVERRIDING SYSTEM VALUE
        SELECT r.id, r.expires, r.headers, r.body, r.seq FROM removed AS r
    )
    SELECT r.id, r.seq, coalesce(r.expires <= v_now, false), r.headers, r.body, r.owner
    FROM removed AS r;

    IF FOUND THEN
        {notify_waiters}
    END IF;
END
$rowpost$;
