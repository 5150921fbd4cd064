CREATE OR REPLACE FUNCTION rowpost."return_lease:{queue_key}"(
    p_token uuid
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Moves a leased message back to its place in the queue.
Atomicity: in the caller's transaction. A rollback leaves the message leased.
Locking:   the row of the lease, until the caller's transaction ends. It waits for whoever renews or returns the lease.
Order:     the message gets its row version back.
Rights:    runs as the owner, as all procedures of a queue do.
*/
BEGIN
    WITH removed AS (
        DELETE FROM {leased_table} AS l WHERE l.token = p_token RETURNING l.id, l.expires, l.headers, l.body, l.seq
    )
    INSERT INTO {queue_table} (id, expires, headers, body, seq)
    OVERRIDING SYSTEM VALUE
    SELECT r.id, r.expires, r.headers, r.body, r.seq FROM removed AS r;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP035', MESSAGE =
            'The lease is lost: it expired, and the message returned to its queue. Nothing of this attempt is committed.';
    END IF;

    {notify_waiters}
END
$rowpost$;
