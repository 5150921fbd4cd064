CREATE OR REPLACE FUNCTION rowpost.renew_ownership(
    p_queue_name text,
    p_seconds integer -- from now, by this server's clock
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Renews the queue ownership of a process; if the ownership ends, check_queue reports the queue.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.queue_ownership.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
BEGIN
    PERFORM rowpost._require_receiver(v_queue_key, p_queue_name);

    IF p_seconds IS NULL OR p_seconds NOT BETWEEN 1 AND 86400 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The queue ownership cannot be renewed: its duration must be between 1 and 86400 seconds.';
    END IF;

    INSERT INTO rowpost.queue_ownership AS l (queue_key, ends_at)
    VALUES (v_queue_key, clock_timestamp() AT TIME ZONE 'UTC' + p_seconds * interval '1 second')
    ON CONFLICT (queue_key) DO UPDATE
    SET ends_at = excluded.ends_at;
END
$rowpost$;
