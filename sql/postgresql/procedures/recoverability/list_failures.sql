CREATE OR REPLACE FUNCTION rowpost.list_failures(
    p_id uuid -- the row's id
) RETURNS TABLE (queue_name text, attempts integer, failed_at timestamp)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the failed attempts at a message, in every queue.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by queue.
*/
SELECT q.queue_name, f.attempts, f.failed_at
FROM rowpost.queue AS q
JOIN rowpost.failure AS f ON f.queue_key = q.queue_key AND f.id = p_id
ORDER BY q.queue_name
$rowpost$;
