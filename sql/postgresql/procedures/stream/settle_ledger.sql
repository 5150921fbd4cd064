CREATE OR REPLACE FUNCTION rowpost.settle_ledger(
    p_job_key text,
    p_part bigint,
    p_messages bigint, -- how many were sent
    p_digest text -- of the messages
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores for a claimed part what was sent, so that a repetition differs from other data with the same key.
Atomicity: in the caller's transaction, with the claim and the messages.
Locking:   the part's row, and a shared lock on the job's row.
A task that ends after its job has ended is refused, so that its messages are rolled back.
Only the login that claimed the part and operators change it.
*/
BEGIN
    IF length(p_digest) > 64 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The part cannot be settled: a digest has at most 64 characters.';
    END IF;

    PERFORM FROM rowpost.job AS j
    WHERE j.job_key = p_job_key
      AND (j.state = 'running' OR (j.state = 'sending' AND EXISTS (
        SELECT FROM rowpost.job_part AS p
        WHERE p.job_key = p_job_key AND p.part = p_part AND p.messages = p_messages AND left(p.digest, 32) = left(p_digest, 32)
      )))
    FOR SHARE OF j;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP031', MESSAGE = format('The job %L has ended or was forgotten. Its part %s was not sent.', p_job_key, p_part);
    END IF;

    UPDATE rowpost.ledger AS l
    SET messages = p_messages, digest = p_digest
    WHERE l.job_key = p_job_key AND l.part = p_part AND l.messages IS NULL
      AND (l.owner_login = session_user OR rowpost._is_operator());
END
$rowpost$;
