CREATE OR REPLACE FUNCTION rowpost.control_queue(
    p_queue_name text,
    p_is_paused boolean DEFAULT NULL, -- whether supervisors receive nothing new; null: as before
    p_worker_limit integer DEFAULT NULL, -- how many workers a supervisor runs at most; 0: what its environment says; null: as before
    p_shared boolean DEFAULT NULL, -- with a limit: it is for all supervisors together; null as false
    p_reason text DEFAULT NULL -- for those who read it, up to 400 characters
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Pauses or resumes a queue, or limits its workers, in the supervisors of all hosts: each sees it with its next look at the queue.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.queue_control.
A queue that is neither paused nor limited any more loses its row. Programs that receive without a supervisor, such as endpoints of
NServiceBus, do not read the table.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    v_shared CONSTANT boolean := p_worker_limit > 0 AND coalesce(p_shared, false);
BEGIN
    IF p_worker_limit NOT BETWEEN 0 AND 10000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003',
            MESSAGE = 'The number of workers must be between 1 and 10000, or 0 for what the environment says.';
    END IF;

    INSERT INTO rowpost.queue_control AS c (queue_key, is_paused, worker_limit, shared, reason, changed_by, changed_at)
    VALUES (
        v_queue_key, coalesce(p_is_paused, false), nullif(p_worker_limit, 0), coalesce(v_shared, false), left(p_reason, 400), session_user, v_now
    )
    ON CONFLICT (queue_key) DO UPDATE
    SET is_paused = coalesce(p_is_paused, c.is_paused),
        worker_limit = CASE WHEN p_worker_limit IS NULL THEN c.worker_limit ELSE excluded.worker_limit END,
        shared = CASE WHEN p_worker_limit IS NULL THEN c.shared ELSE excluded.shared END,
        reason = excluded.reason,
        changed_by = excluded.changed_by,
        changed_at = excluded.changed_at;

    DELETE FROM rowpost.queue_control AS c WHERE c.queue_key = v_queue_key AND NOT c.is_paused AND c.worker_limit IS NULL;
END
$rowpost$;
