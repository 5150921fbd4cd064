CREATE OR REPLACE FUNCTION rowpost.list_supervisors(
    p_count integer, -- maximum number of supervisors, 1 to 1000
    p_after_id uuid DEFAULT NULL -- only supervisors with a higher id
) RETURNS TABLE (
    supervisor_id uuid, host_name text, process_id integer, environment text, rowpost_version text, login_name text,
    started_at timestamp, seen_at timestamp, silent_ms bigint, queues text, workers text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the supervisors of all hosts, with their workers as they last reported them, one page at a time.
Of each login the reports are returned that are newest and together have up to 1000000 characters: logins that only receive write them.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by id.
*/
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of supervisors to list must be between 1 and 1000.';
    END IF;

    RETURN QUERY
    SELECT
        s.supervisor_id, s.host_name::text, s.process_id, s.environment::text, s.rowpost_version::text, s.login_name, s.started_at::timestamp,
        s.seen_at::timestamp, greatest(0, extract(epoch FROM clock_timestamp() AT TIME ZONE 'UTC' - s.seen_at) * 1000)::bigint,
        CASE WHEN z.so_far <= 1000000 THEN s.queues END, CASE WHEN z.so_far <= 1000000 THEN s.workers END
    FROM rowpost.supervisor AS s
    JOIN (
        SELECT
            o.supervisor_id,
            sum(octet_length(o.queues) + octet_length(o.workers)) OVER (
                PARTITION BY o.login_name ORDER BY o.seen_at DESC, o.supervisor_id ROWS UNBOUNDED PRECEDING
            ) AS so_far
        FROM rowpost.supervisor AS o
    ) AS z ON z.supervisor_id = s.supervisor_id
    WHERE p_after_id IS NULL OR s.supervisor_id > p_after_id
    ORDER BY s.supervisor_id
    LIMIT p_count;
END
$rowpost$;
