CREATE OR REPLACE FUNCTION rowpost.resume_operation(
    p_operation_id bigint,
    p_executor uuid -- names the process that goes on with it
) RETURNS TABLE (resumed boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Gives an operation that was interrupted, cancelled or failed to another process, and returns whether it did.
Atomicity: in the caller's transaction.
Locking:   the row of the operation.
A process that is silent for 30 seconds loses its operation: its next report_operation returns no row, so that it rolls back.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    UPDATE rowpost.operation_log AS a
    SET operation_state = 'running', executor = p_executor, changed_at = v_now, ended_at = NULL, cancelled_by = NULL
    WHERE a.operation_id = p_operation_id
      AND a.executor IS NOT NULL
      AND (a.operation_state IN ('interrupted', 'cancelled', 'failed') OR (a.operation_state = 'running' AND a.changed_at < v_now - interval '30 seconds'));

    RETURN QUERY SELECT FOUND;
END
$rowpost$;
