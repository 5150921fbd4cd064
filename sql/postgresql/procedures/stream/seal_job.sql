CREATE OR REPLACE FUNCTION rowpost.seal_job(
    p_job_key text,
    p_attempts text[], -- the attempts that count, one of each task, in the order of the tasks
    p_messages text[], -- how many messages each of them has
    p_digests text[], -- the digest of each
    p_digest text -- of all messages
) RETURNS TABLE (part bigint, attempt text, messages bigint, digest text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Fixes what a job sends, once all its tasks have stored their messages, and returns the parts that are not sent yet.
If an earlier run was sealed, its parts are returned: they are sent, and not those of this run.
The first 32 characters of a digest do not depend on the order of messages. Only they are compared.
Atomicity: in the caller's transaction.
Locking:   the job's row.
*/
DECLARE
    v_job rowpost.job;
    v_messages bigint := (SELECT coalesce(sum(m.value::bigint), 0) FROM unnest(p_messages) AS m (value));
BEGIN
    IF length(p_digest) > 64 OR EXISTS (SELECT FROM unnest(p_digests) AS d (value) WHERE length(d.value) > 64)
       OR EXISTS (SELECT FROM unnest(p_attempts) AS a (value) WHERE length(a.value) > 100) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The job cannot be sealed: an attempt may have at most 100 characters, a digest 64.';
    END IF;

    SELECT * INTO v_job FROM rowpost.job AS j WHERE j.job_key = p_job_key FOR UPDATE;

    IF v_job.job_key IS NULL OR (v_job.owner_login <> session_user AND NOT rowpost._is_operator()) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE = format('There is no job %L of this login: it was forgotten. Run it again.', p_job_key);
    END IF;

    IF v_job.state IN ('sending', 'done') AND (v_job.messages <> v_messages OR left(v_job.digest, 32) <> left(p_digest, 32)) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE =
            format('The job key %L was already used with other messages: %s then, %s now. These were not sent.', p_job_key, v_job.messages, v_messages),
            HINT = 'Use another key for other data.';
    END IF;

    IF v_job.state IN ('running', 'failed') THEN
        IF EXISTS (
            SELECT FROM rowpost.ledger AS l
            LEFT JOIN unnest(p_messages, p_digests) WITH ORDINALITY AS p (messages, digest, place) ON p.place = l.part + 1
            WHERE l.job_key = p_job_key AND (p.digest IS NULL OR l.messages <> p.messages::bigint OR left(l.digest, 32) <> left(p.digest, 32))
        ) THEN
            RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE =
                format('The job key %L was already used: an earlier run sent some parts of its data, and this run has other messages in them. Nothing was sent now.', p_job_key),
                HINT = 'If it is the same job, repartition it by a column of its data, as the earlier run did. If it has other data, use another job key.';
        END IF;

        INSERT INTO rowpost.job_part (job_key, part, attempt, messages, digest)
        SELECT p_job_key, p.place - 1, p.attempt, p.messages::bigint, p.digest
        FROM unnest(p_attempts, p_messages, p_digests) WITH ORDINALITY AS p (attempt, messages, digest, place);

        UPDATE rowpost.job AS j
        SET
            state = 'sending', parts = cardinality(p_attempts), messages = v_messages, digest = p_digest,
            changed_at = clock_timestamp() AT TIME ZONE 'UTC'
        WHERE j.job_key = p_job_key;
    END IF;

    RETURN QUERY
    SELECT p.part, p.attempt, p.messages, p.digest
    FROM rowpost.job_part AS p
    WHERE p.job_key = p_job_key AND NOT EXISTS (SELECT FROM rowpost.ledger AS l WHERE l.job_key = p.job_key AND l.part = p.part)
    ORDER BY p.part;
END
$rowpost$;
