CREATE OR REPLACE FUNCTION rowpost.forget_job(
    p_job_key text
) RETURNS TABLE (state text, parts bigint, messages bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Deletes what is known of a job, so that its key is free, and returns its state and what it sent. Its messages in queues stay.
Its staged messages are not sent any more; drop_staged deletes them. There is no row if there is no such job.
Atomicity: in the caller's transaction.
Locking:   the job's rows.
Only jobs of the caller's login are deleted, unless it is an operator.
*/
DECLARE
    v_state text;
    v_parts bigint;
    v_messages bigint;
BEGIN
    DELETE FROM rowpost.job AS j
    WHERE j.job_key = p_job_key AND (j.owner_login = session_user OR rowpost._is_operator())
    RETURNING j.state INTO v_state;

    IF v_state IS NULL THEN
        RETURN;
    END IF;

    DELETE FROM rowpost.job_part AS p WHERE p.job_key = p_job_key;

    SELECT count(*), coalesce(sum(l.messages), 0)
    INTO v_parts, v_messages
    FROM rowpost.ledger AS l
    WHERE l.job_key = p_job_key;

    DELETE FROM rowpost.ledger AS l WHERE l.job_key = p_job_key;

    RETURN QUERY SELECT v_state, v_parts, v_messages;
END
$rowpost$;
