CREATE OR REPLACE FUNCTION rowpost.read_handled(
    p_endpoint text,
    p_message_id text
) RETURNS TABLE (handled_at timestamp, sent boolean)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns when an endpoint has handled a message, and whether its operations are sent. For people: it locks nothing.
Atomicity: reads only.
Locking:   none that lasts.
*/
SELECT o.handled_at, p.message_id IS NULL
FROM rowpost.outbox AS o
LEFT JOIN rowpost.outbox_operations AS p ON p.endpoint = o.endpoint AND p.message_id = o.message_id
WHERE o.endpoint = p_endpoint AND o.message_id = p_message_id
$rowpost$;
