CREATE OR REPLACE FUNCTION rowpost.settle_ledger(
    p_job_key text,
    p_part bigint,
    p_messages bigint, -- how many were sent
    p_digest text -- of the messages, in any order
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores for a claimed part what was sent, so that a repetition differs from other data with the same key.
Atomicity: in the caller's transaction, with the claim and the messages.
Locking:   the part's row.
Only the login that claimed the part and operators change it.
*/
BEGIN
    UPDATE rowpost.ledger AS l
    SET messages = p_messages, digest = p_digest
    WHERE l.job_key = p_job_key AND l.part = p_part AND l.messages IS NULL
      AND (l.owner_login = session_user OR rowpost._is_operator());
END
$rowpost$;
