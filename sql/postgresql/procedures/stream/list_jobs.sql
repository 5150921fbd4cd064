CREATE OR REPLACE FUNCTION rowpost.list_jobs(
    p_count integer, -- how many at most, 1 to 10000
    p_job_key text DEFAULT NULL -- null: every job
) RETURNS TABLE (
    job_key text, destination text, mode text, state text, started_by text, owner_login text, started_at timestamp, changed_at timestamp,
    parts bigint, messages bigint, digest text, parts_sent bigint, messages_sent bigint, messages_staged bigint
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns jobs that write to queues, the one that changed last first, with what they sent and what they stored and did not send yet.
Atomicity: reads only.
Locking:   none that lasts.
Only jobs of the caller's login are returned, unless it is an operator.
*/
BEGIN
    IF coalesce(p_count, 0) NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The count must be a number from 1 to 10000.';
    END IF;

    RETURN QUERY
    SELECT
        j.job_key, j.destination, j.sending_mode, j.state, j.started_by, j.owner_login::text, j.started_at::timestamp, j.changed_at::timestamp, j.parts,
        j.messages, j.digest, s.parts, s.messages, (SELECT count(*) FROM rowpost.staged_message AS m WHERE m.job_key = j.job_key)
    FROM rowpost.job AS j
    CROSS JOIN LATERAL (
        SELECT count(*) AS parts, coalesce(sum(l.messages), 0)::bigint AS messages
        FROM rowpost.ledger AS l
        WHERE l.job_key = j.job_key
    ) AS s
    WHERE (p_job_key IS NULL OR j.job_key = p_job_key) AND (j.owner_login = session_user OR rowpost._is_operator())
    ORDER BY j.changed_at DESC, j.job_key ASC
    LIMIT p_count;
END
$rowpost$;
