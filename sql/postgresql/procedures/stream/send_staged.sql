CREATE OR REPLACE FUNCTION rowpost."send_staged:{queue_key}"(
    p_job_key text,
    p_attempts text[] -- the attempts that count, one of each task, in the order of the tasks
) RETURNS TABLE (sent bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Moves a job's staged messages to the queue, and returns how many.
Atomicity: one DELETE and INSERT in the caller's transaction.
Locking:   the staged rows.
Only messages of the caller's login are moved, unless it is an operator.
Order:     by task, and within a task as they were staged.
*/
DECLARE
    v_sent bigint;
BEGIN
    WITH removed AS (
        DELETE FROM rowpost.staged_message AS s
        WHERE s.job_key = p_job_key AND s.attempt = ANY (p_attempts) AND (s.owner_login = session_user OR rowpost._is_operator())
        RETURNING s.attempt, s.number, s.id, s.headers, s.body
    )
    INSERT INTO {queue_table} (id, headers, body)
    SELECT coalesce(r.id, gen_random_uuid()), r.headers, r.body
    FROM removed AS r
    JOIN unnest(p_attempts) WITH ORDINALITY AS a (attempt, task) ON a.attempt = r.attempt
    ORDER BY a.task, r.number;

    GET DIAGNOSTICS v_sent = ROW_COUNT;
    RETURN QUERY SELECT v_sent;
END
$rowpost$;
