CREATE OR REPLACE FUNCTION rowpost.clean_jobs(
    p_staged_seconds integer, -- how long messages of jobs that ended or do nothing are kept
    p_ledger_seconds integer, -- how long jobs and what they sent are kept
    p_count integer -- how many rows of each kind at most, 1 to 4000
) RETURNS TABLE (failed bigint, staged bigint, sent bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Deletes staged messages of jobs that ended, and old jobs with their ledger.
A job that has stored and sent nothing for as long as staged messages are kept counts as failed. The ledger of a stream is kept.
Atomicity: in the caller's transaction.
Locking:   the rows that it changes.
*/
DECLARE
    v_now timestamp(3) := clock_timestamp() AT TIME ZONE 'UTC';
    v_before timestamp(3);
    v_ledger_before timestamp(3);
    v_failed bigint;
    v_staged bigint;
    v_sent bigint;
BEGIN
    IF coalesce(p_count, 0) NOT BETWEEN 1 AND 4000 OR coalesce(p_staged_seconds, -1) < 0 OR coalesce(p_ledger_seconds, -1) < 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The count must be a number from 1 to 4000, and ages must be 0 seconds or more.';
    END IF;

    v_before := v_now - p_staged_seconds * interval '1 second';
    v_ledger_before := v_now - p_ledger_seconds * interval '1 second';

    UPDATE rowpost.job AS j
    SET state = 'failed', changed_at = v_now
    WHERE j.state = 'running' AND j.changed_at < v_before
      AND NOT EXISTS (SELECT FROM rowpost.staged_message AS s WHERE s.job_key = j.job_key AND s.staged_at >= v_before)
      AND NOT EXISTS (SELECT FROM rowpost.ledger AS l WHERE l.job_key = j.job_key AND l.claimed_at >= v_before);

    GET DIAGNOSTICS v_failed = ROW_COUNT;

    -- a job that was not sent completely is given up, with what it stored
    DELETE FROM rowpost.job_part AS p
    USING rowpost.job AS j
    WHERE j.job_key = p.job_key AND j.changed_at < v_ledger_before;

    DELETE FROM rowpost.staged_message AS s
    USING (
        SELECT d.job_key, d.attempt, d.number
        FROM rowpost.staged_message AS d
        WHERE d.staged_at < v_before
          AND NOT EXISTS (SELECT FROM rowpost.job AS j WHERE j.job_key = d.job_key AND j.state = 'running')
          AND NOT EXISTS (SELECT FROM rowpost.job_part AS p WHERE p.job_key = d.job_key AND p.attempt = split_part(d.attempt, ':', 1))
        LIMIT p_count
    ) AS d
    WHERE s.job_key = d.job_key AND s.attempt = d.attempt AND s.number = d.number;

    GET DIAGNOSTICS v_staged = ROW_COUNT;

    DELETE FROM rowpost.ledger AS l
    USING (
        SELECT d.job_key, d.part
        FROM rowpost.ledger AS d
        WHERE d.claimed_at < v_ledger_before AND d.parts IS DISTINCT FROM 0
          AND NOT EXISTS (SELECT FROM rowpost.job AS j WHERE j.job_key = d.job_key AND (j.changed_at >= v_ledger_before OR j.state = 'running'))
        LIMIT p_count
    ) AS d
    WHERE l.job_key = d.job_key AND l.part = d.part;

    GET DIAGNOSTICS v_sent = ROW_COUNT;

    DELETE FROM rowpost.job AS j
    USING (
        SELECT d.job_key
        FROM rowpost.job AS d
        WHERE d.changed_at < v_ledger_before AND d.state <> 'running'
          AND NOT EXISTS (SELECT FROM rowpost.ledger AS l WHERE l.job_key = d.job_key)
        LIMIT p_count
    ) AS d
    WHERE j.job_key = d.job_key;

    RETURN QUERY SELECT v_failed, v_staged, v_sent;
END
$rowpost$;
