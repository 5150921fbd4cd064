CREATE OR REPLACE FUNCTION rowpost.record_failure(
    p_queue_key text,
    p_id uuid -- the row's id
) RETURNS TABLE (attempts integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Counts a failed attempt at a message and returns the number of attempts, including this one.
Atomicity: in the caller's transaction, which must not be the transaction that failed.
Locking:   one row of rowpost.failure.
A count that was not changed for a week belongs to a message that was handled elsewhere. Each call deletes a few of them.
*/
DECLARE
    v_now CONSTANT timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF length(p_queue_key) > 128 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The failure cannot be counted: a queue key has at most 128 characters.';
    END IF;

    PERFORM rowpost._require_receiver(p_queue_key, p_queue_key);

    DELETE FROM rowpost.failure AS f
    WHERE f.ctid = ANY (ARRAY(
        SELECT c.ctid FROM rowpost.failure AS c WHERE c.failed_at < v_now - interval '7 days' LIMIT 20 FOR UPDATE SKIP LOCKED
    ));

    RETURN QUERY
    INSERT INTO rowpost.failure AS f (queue_key, id, attempts, failed_at)
    VALUES (p_queue_key, p_id, 1, v_now)
    ON CONFLICT ON CONSTRAINT failure_key DO UPDATE
    SET attempts = f.attempts + 1,
        failed_at = excluded.failed_at
    RETURNING f.attempts;
END
$rowpost$;
