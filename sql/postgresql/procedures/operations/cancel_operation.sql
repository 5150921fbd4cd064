CREATE OR REPLACE FUNCTION rowpost.cancel_operation(
    p_operation_id bigint,
    p_user_name text DEFAULT NULL -- who cancels it, if the login does not say it
) RETURNS TABLE (cancelled boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Requests that an operation stops, and returns whether it had not ended. Its process sees it with its next report.
Atomicity: in the caller's transaction.
Locking:   the row of the operation: waits for the process that executes it, until its transaction of some messages ends.
An operation whose process has been silent for 30 seconds is cancelled at once.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    v_who CONSTANT text := CASE WHEN p_user_name IS NULL THEN session_user ELSE format('%s (%s)', p_user_name, session_user) END;
BEGIN
    UPDATE rowpost.operation_log AS a
    SET cancelled_by = coalesce(a.cancelled_by, left(v_who, 400)),
        operation_state = CASE WHEN a.changed_at < v_now - interval '30 seconds' OR a.operation_state = 'interrupted' THEN 'cancelled' ELSE a.operation_state END,
        ended_at = CASE WHEN a.changed_at < v_now - interval '30 seconds' OR a.operation_state = 'interrupted' THEN v_now END
    WHERE a.operation_id = p_operation_id AND a.operation_state IN ('running', 'interrupted');

    RETURN QUERY SELECT FOUND;
END
$rowpost$;
