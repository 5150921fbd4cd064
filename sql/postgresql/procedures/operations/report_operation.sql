CREATE OR REPLACE FUNCTION rowpost.report_operation(
    p_operation_id bigint,
    p_executor uuid, -- as given to record_operation or resume_operation
    p_operation_state text DEFAULT NULL, -- its end: done, cancelled, failed or interrupted; null: it goes on
    p_total bigint DEFAULT NULL, -- messages that it applies to; null: as before
    p_done bigint DEFAULT NULL, -- messages that it has changed; null: as before
    p_gone bigint DEFAULT NULL, -- messages that another session had removed or locked; null: as before
    p_refused bigint DEFAULT NULL, -- messages that stay because they cannot be changed; null: as before
    p_reached bigint DEFAULT NULL, -- the last row version that is finished; null: as before
    p_up_to bigint DEFAULT NULL, -- the last row version that it applies to; null: as before
    p_outcome text DEFAULT NULL -- null: as before
) RETURNS TABLE (is_cancelled boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records how far an operation has come, or that it has ended, and returns whether somebody has cancelled it.
Atomicity: one row in the caller's transaction, which is that of the messages that were changed.
Locking:   the row of the operation.
Returns no row if the operation has ended, or if another process executes it: then the caller rolls back and stops.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    RETURN QUERY
    UPDATE rowpost.operation_log AS a
    SET operation_state = coalesce(left(p_operation_state, 20), a.operation_state),
        total_count = coalesce(p_total, a.total_count),
        done_count = coalesce(p_done, a.done_count),
        gone_count = coalesce(p_gone, a.gone_count),
        refused_count = coalesce(p_refused, a.refused_count),
        reached = coalesce(p_reached, a.reached),
        up_to = coalesce(p_up_to, a.up_to),
        outcome = coalesce(left(p_outcome, 1000), a.outcome),
        changed_at = v_now,
        ended_at = CASE WHEN p_operation_state IS NOT NULL THEN v_now END
    WHERE a.operation_id = p_operation_id AND a.executor = p_executor AND a.ended_at IS NULL
    RETURNING a.cancelled_by IS NOT NULL;
END
$rowpost$;
