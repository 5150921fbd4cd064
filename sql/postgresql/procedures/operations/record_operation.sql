CREATE OR REPLACE FUNCTION rowpost.record_operation(
    p_operation_name text, -- what is done, for example retry
    p_client text, -- the program, for example dashboard
    p_queue_name text DEFAULT NULL, -- the queue that it is done to; null: to none in particular
    p_user_name text DEFAULT NULL, -- who uses the program, if the login does not say it
    p_message_id text DEFAULT NULL,
    p_details text DEFAULT NULL, -- JSON object: what is selected and what changes; no bodies and no values of headers
    p_reason text DEFAULT NULL, -- for those who read it, up to 400 characters
    p_outcome text DEFAULT NULL, -- what became of it, for example the queue to which a message went
    p_done bigint DEFAULT NULL, -- messages; null as 1, or as 0 with an executor
    p_up_to bigint DEFAULT NULL, -- the last row version that it applies to
    p_executor uuid DEFAULT NULL -- an operation that goes on: names the process that executes it. Null: it is done with this transaction
) RETURNS TABLE (operation_id bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records what an operator does, and returns its number. An operation that goes on is reported by report_operation.
Atomicity: one row in the caller's transaction, which is that of the operation itself.
Locking:   its own row.
The login must be allowed to receive from the queue, or be an operator. If no queue is named, it must be an operator.
*/
DECLARE
    v_queue_key CONSTANT text := CASE WHEN p_queue_name IS NOT NULL THEN rowpost._resolve_queue(p_queue_name) END;
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    PERFORM rowpost._require_receiver(v_queue_key, coalesce(p_queue_name, 'all queues'));

    RETURN QUERY
    INSERT INTO rowpost.operation_log AS a (
        operation_name, operation_state, client, login_name, user_name, queue_name, message_id, details, reason, outcome, started_at, changed_at, ended_at,
        done_count, gone_count, refused_count, up_to, executor
    )
    VALUES (
        left(p_operation_name, 50), CASE WHEN p_executor IS NULL THEN 'done' ELSE 'running' END, left(p_client, 50), session_user,
        left(p_user_name, 200), left(p_queue_name, 400), left(p_message_id, 200), left(p_details, 4000), left(p_reason, 400), left(p_outcome, 1000),
        v_now, v_now, CASE WHEN p_executor IS NULL THEN v_now END,
        coalesce(p_done, CASE WHEN p_executor IS NULL THEN 1 ELSE 0 END), 0, 0, p_up_to, p_executor
    )
    RETURNING a.operation_id;
END
$rowpost$;
