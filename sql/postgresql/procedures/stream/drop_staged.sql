CREATE OR REPLACE FUNCTION rowpost.drop_staged(
    p_job_key text DEFAULT NULL, -- null: of every job
    p_seconds integer DEFAULT NULL, -- only messages that were staged longer ago than this; null: all
    p_run text DEFAULT NULL -- only messages of this run of the job; null: of every run
) RETURNS TABLE (dropped bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Deletes staged messages that are not going to be sent, because their attempt failed or their job was stopped.
Atomicity: in the caller's transaction.
Locking:   the staged rows.
Messages of parts that a job is sending are kept.
Only messages of the caller's login are deleted, unless it is an operator.
*/
DECLARE
    v_dropped bigint;
BEGIN
    IF p_seconds < 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The age must be 0 seconds or more.';
    END IF;

    DELETE FROM rowpost.staged_message AS s
    WHERE (p_job_key IS NULL OR s.job_key = p_job_key)
      AND (p_run IS NULL OR left(s.attempt, length(p_run) + 1) = p_run || '/')
      AND NOT EXISTS (SELECT FROM rowpost.job_part AS p WHERE p.job_key = s.job_key AND p.attempt = split_part(s.attempt, ':', 1))
      AND (s.owner_login = session_user OR rowpost._is_operator())
      AND (p_seconds IS NULL OR s.staged_at < (clock_timestamp() AT TIME ZONE 'UTC') - p_seconds * interval '1 second');

    GET DIAGNOSTICS v_dropped = ROW_COUNT;
    RETURN QUERY SELECT v_dropped;
END
$rowpost$;
