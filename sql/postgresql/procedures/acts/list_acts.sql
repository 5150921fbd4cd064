CREATE OR REPLACE FUNCTION rowpost.list_acts(
    p_count integer, -- maximum number of acts, 1 to 1000
    p_before_id bigint DEFAULT NULL -- only acts with a lower number
) RETURNS TABLE (
    act_id bigint, act_name text, act_state text, client text, login_name text, user_name text, queue_name text, message_id text, details text,
    reason text, outcome text, started_at timestamp, changed_at timestamp, ended_at timestamp, total_count bigint, done_count bigint,
    gone_count bigint, refused_count bigint, reached bigint, up_to bigint, cancelled_by text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the acts of operators, the last one first, one page at a time.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by number, the highest first.
An act whose process has been silent for 30 seconds is listed as interrupted.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of acts to list must be between 1 and 1000.';
    END IF;

    RETURN QUERY
    SELECT
        a.act_id, a.act_name::text,
        CASE WHEN a.act_state = 'running' AND a.changed_at < v_now - interval '30 seconds' THEN 'interrupted' ELSE a.act_state::text END,
        a.client::text, a.login_name, a.user_name::text, a.queue_name::text, a.message_id::text, a.details::text, a.reason::text, a.outcome::text,
        a.started_at::timestamp, a.changed_at::timestamp, a.ended_at::timestamp, a.total_count, a.done_count, a.gone_count, a.refused_count,
        a.reached, a.up_to, a.cancelled_by::text
    FROM rowpost.act AS a
    WHERE p_before_id IS NULL OR a.act_id < p_before_id
    ORDER BY a.act_id DESC
    LIMIT p_count;
END
$rowpost$;
