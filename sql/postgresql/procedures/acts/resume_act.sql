CREATE OR REPLACE FUNCTION rowpost.resume_act(
    p_act_id bigint,
    p_executor uuid -- names the process that goes on with it
) RETURNS TABLE (resumed boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Gives an act that was interrupted, cancelled or failed to another process, and returns whether it did.
Atomicity: in the caller's transaction.
Locking:   the row of the act.
A process that is silent for 30 seconds loses its act: its next report_act returns no row, so that it rolls back.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    UPDATE rowpost.act AS a
    SET act_state = 'running', executor = p_executor, changed_at = v_now, ended_at = NULL, cancelled_by = NULL
    WHERE a.act_id = p_act_id
      AND a.executor IS NOT NULL
      AND (a.act_state IN ('interrupted', 'cancelled', 'failed') OR (a.act_state = 'running' AND a.changed_at < v_now - interval '30 seconds'));

    RETURN QUERY SELECT FOUND;
END
$rowpost$;
