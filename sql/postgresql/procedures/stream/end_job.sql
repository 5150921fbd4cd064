CREATE OR REPLACE FUNCTION rowpost.end_job(
    p_job_key text,
    p_run text, -- of a run that failed: another run of the job goes on
    p_done boolean, -- false: the run failed
    p_parts bigint DEFAULT NULL, -- of a direct job; null: as sealed
    p_messages bigint DEFAULT NULL,
    p_digest text DEFAULT NULL
) RETURNS TABLE (ended boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records that a job is done, or that a run of it failed. A job with parts that are not sent yet is never done.
Atomicity: in the caller's transaction.
Locking:   the job's row and its parts. Waits for tasks that are storing messages.
Only the login that began the job and operators change it.
*/
DECLARE
    v_ended boolean;
BEGIN
    IF length(p_digest) > 64 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The job cannot end: a digest has at most 64 characters.';
    END IF;

    UPDATE rowpost.job AS j
    SET
        state = CASE WHEN p_done THEN 'done' ELSE 'failed' END,
        parts = coalesce(p_parts, j.parts), messages = coalesce(p_messages, j.messages), digest = coalesce(p_digest, j.digest),
        changed_at = clock_timestamp() AT TIME ZONE 'UTC'
    WHERE j.job_key = p_job_key AND (j.owner_login = session_user OR rowpost._is_operator())
      AND ((NOT p_done AND j.state = 'running' AND j.run = p_run)
        OR (p_done AND j.state IN ('running', 'sending') AND NOT EXISTS (
            SELECT FROM rowpost.job_part AS p
            WHERE p.job_key = j.job_key AND NOT EXISTS (SELECT FROM rowpost.ledger AS l WHERE l.job_key = p.job_key AND l.part = p.part)
        )));

    v_ended := FOUND;

    IF v_ended AND p_done THEN
        DELETE FROM rowpost.job_part AS p WHERE p.job_key = p_job_key;
    END IF;

    RETURN QUERY SELECT v_ended;
END
$rowpost$;
