CREATE OR REPLACE FUNCTION rowpost.begin_job(
    p_job_key text, -- 1 to 200 characters
    p_destination text, -- the queue
    p_run text, -- identifies this run of the job
    p_mode text, -- staged or direct
    p_started_by text DEFAULT NULL -- where it runs, for people
) RETURNS TABLE (state text, mode text, messages bigint, digest text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Begins a run of a job and returns the job's state. A job that is running or failed belongs to this run from now on.
A job that ran before is staged, so that nothing is sent before it is compared with what the earlier run sent.
Atomicity: one INSERT or UPDATE in the caller's transaction.
Locking:   the job's row.
*/
DECLARE
    v_now timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
    v_owner name;
BEGIN
    IF length(p_destination) > 200 OR length(p_run) > 40 OR length(p_mode) > 20 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE =
            'The job cannot begin: its destination may have at most 200 characters, its run 40 and its mode 20.';
    END IF;

    IF coalesce(length(p_job_key), 0) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP032', MESSAGE = 'The job cannot begin: a job key must have 1 to 200 characters.';
    END IF;

    INSERT INTO rowpost.job AS j (job_key, destination, run, sending_mode, state, started_by, started_at, changed_at)
    VALUES (
        p_job_key, p_destination, p_run, CASE WHEN EXISTS (SELECT FROM rowpost.ledger AS l WHERE l.job_key = p_job_key) THEN 'staged' ELSE p_mode END,
        'running', p_started_by, v_now, v_now
    )
    ON CONFLICT ON CONSTRAINT job_pk DO NOTHING;

    IF NOT FOUND THEN
        SELECT j.owner_login INTO v_owner FROM rowpost.job AS j WHERE j.job_key = p_job_key FOR UPDATE;

        IF v_owner <> session_user AND NOT rowpost._is_operator() THEN
            RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE = 'The job key was used already, by another login. Use another job key.';
        END IF;

        UPDATE rowpost.job AS j
        SET run = p_run, sending_mode = 'staged', state = 'running', started_by = p_started_by, changed_at = v_now
        WHERE j.job_key = p_job_key AND j.state IN ('running', 'failed');
    END IF;

    RETURN QUERY
    SELECT j.state, CASE WHEN j.run = p_run THEN j.sending_mode ELSE 'staged' END, j.messages, j.digest
    FROM rowpost.job AS j
    WHERE j.job_key = p_job_key;
END
$rowpost$;
