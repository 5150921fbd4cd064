CREATE OR REPLACE FUNCTION rowpost.claim_ledger(
    p_job_key text, -- 1 to 200 characters
    p_part bigint, -- from 0
    p_parts bigint DEFAULT NULL -- how many the job has, if known; 0: parts follow one another, as a stream's batches do
) RETURNS TABLE (claimed boolean, messages bigint, digest text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '60s'
AS $rowpost$
/*
Claims one part of a job in the transaction that sends its messages; if it was sent before, returns what was sent.
Parts that follow one another are claimed in order: a part that is not after the last one was sent before.
Atomicity: in the caller's transaction, with what is sent.
Locking:   the new row. Waits for a session that writes the same part, 60 s at most.
*/
DECLARE
    v_other bigint;
    v_claimed boolean := false;
BEGIN
    IF coalesce(length(p_job_key), 0) NOT BETWEEN 1 AND 200 OR coalesce(p_part, -1) < 0 OR p_parts < 0 OR (p_parts > 0 AND p_part >= p_parts) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP032', MESSAGE =
            'The part cannot be claimed: a job key must have 1 to 200 characters, and parts are numbered from 0 up to their number.';
    END IF;

    IF EXISTS (SELECT FROM rowpost.ledger AS l WHERE l.job_key = p_job_key AND l.owner_login <> session_user) AND NOT rowpost._is_operator() THEN
        RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE = 'The job key was used already, by another login. Use another job key.';
    END IF;

    SELECT max(coalesce(l.parts, -1))
    INTO v_other
    FROM rowpost.ledger AS l
    WHERE l.job_key = p_job_key AND (coalesce(l.parts, -1) <> p_parts OR (l.parts > 0 AND l.parts <= p_part));

    IF v_other IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE =
            format('The job key %L was used already, by a job of %s parts; this one has %s.',
                p_job_key, coalesce(nullif(v_other, -1)::text, 'an unknown number of'), greatest(p_parts, p_part + 1)),
            HINT = 'If it is the same job, repartition it by a column of its data into the same number of parts. If it has other data, use another job key.';
    END IF;

    IF p_parts IS DISTINCT FROM 0 OR NOT EXISTS (SELECT FROM rowpost.ledger AS l WHERE l.job_key = p_job_key AND l.part > p_part) THEN
        INSERT INTO rowpost.ledger (job_key, part, parts, claimed_at)
        VALUES (p_job_key, p_part, p_parts, clock_timestamp() AT TIME ZONE 'UTC')
        ON CONFLICT DO NOTHING;
        v_claimed := FOUND;
    END IF;

    IF v_claimed AND p_parts = 0 THEN
        DELETE FROM rowpost.ledger AS l WHERE l.job_key = p_job_key AND l.part < p_part;
    END IF;

    RETURN QUERY
    SELECT
        v_claimed,
        (SELECT l.messages FROM rowpost.ledger AS l WHERE l.job_key = p_job_key AND l.part = p_part),
        (SELECT l.digest FROM rowpost.ledger AS l WHERE l.job_key = p_job_key AND l.part = p_part);
END
$rowpost$;
