CREATE OR REPLACE FUNCTION rowpost.stage_messages(
    p_job_key text, -- 1 to 200 characters
    p_attempt text, -- one attempt of one task; of a job it begins with its run and a slash
    p_headers text[],
    p_bodies bytea[],
    p_ids uuid[] DEFAULT NULL, -- null: new ids
    p_times_to_be_received_ms bigint[] DEFAULT NULL -- not for staged messages
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores messages that are sent when all tasks of a job, or of a batch of a stream, have stored theirs.
Nothing is stored for a job that has ended, nor for an earlier run of it.
Atomicity: one INSERT in the caller's transaction.
Locking:   the new rows, and a shared lock on the job's row.
Order:     numbers increase with the place in the arrays.
*/
DECLARE
    v_state text;
    v_run text;
BEGIN
    IF length(p_attempt) > 100 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The messages cannot be staged: an attempt may have at most 100 characters.';
    END IF;

    IF coalesce(length(p_job_key), 0) NOT BETWEEN 1 AND 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP032', MESSAGE = 'The messages cannot be staged: a job key must have 1 to 200 characters.';
    END IF;

    IF p_headers IS NULL
       OR coalesce(cardinality(p_bodies), 0) <> cardinality(p_headers)
       OR cardinality(p_ids) <> cardinality(p_headers)
       OR p_times_to_be_received_ms IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP006', MESSAGE =
            'The arrays of stage_messages must have the same length, headers must not be null, and staged messages never expire.';
    END IF;

    SELECT j.state, j.run INTO v_state, v_run FROM rowpost.job AS j WHERE j.job_key = p_job_key FOR SHARE;

    IF v_state <> 'running' OR left(p_attempt, length(v_run) + 1) <> v_run || '/' THEN
        RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE =
            format('This run of the job %L has ended, or another run of it has begun. Its messages are not stored.', p_job_key);
    END IF;

    INSERT INTO rowpost.staged_message (job_key, attempt, id, headers, body, staged_at)
    SELECT p_job_key, p_attempt, m.id, m.headers, m.body, clock_timestamp() AT TIME ZONE 'UTC'
    FROM unnest(p_ids, p_headers, p_bodies) AS m (id, headers, body);
END
$rowpost$;
