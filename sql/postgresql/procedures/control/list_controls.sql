CREATE OR REPLACE FUNCTION rowpost.list_controls() RETURNS TABLE (
    queue_name text, is_paused boolean, worker_limit integer, shared boolean, reason text, changed_by text, changed_at timestamp
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the queues that operators have paused or limited.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by name.
*/
SELECT q.queue_name, c.is_paused, c.worker_limit, c.shared, c.reason, c.changed_by, c.changed_at
FROM rowpost.queue_control AS c
JOIN rowpost.queue AS q ON q.queue_key = c.queue_key
ORDER BY q.queue_name
$rowpost$;
