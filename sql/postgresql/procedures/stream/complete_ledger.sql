CREATE OR REPLACE FUNCTION rowpost.complete_ledger(
    p_job_key text,
    p_parts bigint -- how many the job had
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records that all parts of a job were sent, and how many there were; a job with the same key and more parts is refused.
Atomicity: in the caller's transaction.
Locking:   the job's rows.
Only the login that claimed the parts and operators change them.
*/
BEGIN
    UPDATE rowpost.ledger AS l
    SET parts = p_parts
    WHERE l.job_key = p_job_key AND l.parts IS DISTINCT FROM p_parts AND (l.owner_login = session_user OR rowpost._is_operator());
END
$rowpost$;
