CREATE OR REPLACE FUNCTION rowpost."end_lease:{queue_key}"(
    p_token uuid
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Removes a leased message: it is handled, or is stored elsewhere in the same transaction.
Atomicity: one DELETE in the caller's transaction. A rollback leaves the message leased.
Locking:   the row of the lease, until the caller's transaction ends. It waits for whoever renews or returns the lease.
Order:     none.
A lease that has expired but that nobody has returned yet can be ended.
*/
BEGIN
    DELETE FROM {leased_table} AS l WHERE l.token = p_token;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP035', MESSAGE =
            'The lease is lost: it expired, and the message returned to its queue. Nothing of this attempt is committed.';
    END IF;
END
$rowpost$;
