CREATE OR REPLACE FUNCTION rowpost.list_operations(
    p_count integer, -- maximum number of operations, 1 to 1000
    p_before_id bigint DEFAULT NULL -- only operations with a lower number
) RETURNS TABLE (
    operation_id bigint, operation_name text, operation_state text, client text, login_name text, user_name text, queue_name text, message_id text,
    details text, reason text, outcome text, started_at timestamp, changed_at timestamp, ended_at timestamp, total_count bigint, done_count bigint,
    gone_count bigint, refused_count bigint, reached bigint, up_to bigint, cancelled_by text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists what operators did, the last one first, one page at a time.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by number, the highest first.
An operation whose process has been silent for 30 seconds is listed as interrupted.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of operations to list must be between 1 and 1000.';
    END IF;

    RETURN QUERY
    SELECT
        a.operation_id, a.operation_name::text,
        CASE WHEN a.operation_state = 'running' AND a.changed_at < v_now - interval '30 seconds' THEN 'interrupted' ELSE a.operation_state::text END,
        a.client::text, a.login_name, a.user_name::text, a.queue_name::text, a.message_id::text, a.details::text, a.reason::text, a.outcome::text,
        a.started_at::timestamp, a.changed_at::timestamp, a.ended_at::timestamp, a.total_count, a.done_count, a.gone_count, a.refused_count,
        a.reached, a.up_to, a.cancelled_by::text
    FROM rowpost.operation_log AS a
    WHERE p_before_id IS NULL OR a.operation_id < p_before_id
    ORDER BY a.operation_id DESC
    LIMIT p_count;
END
$rowpost$;
