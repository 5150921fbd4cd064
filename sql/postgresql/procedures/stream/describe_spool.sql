CREATE OR REPLACE FUNCTION rowpost."describe_spool:{queue_key}"() RETURNS TABLE (
    owned_by text, confirmed boolean, first_number bigint, last_number bigint, taken_at timestamp
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Returns the owner of the queue's spool and its first and last number; no row if no stream ever drained the queue.
Atomicity: reads only.
Locking:   none.
*/
BEGIN
    RETURN QUERY
    SELECT
        s.owned_by,
        s.confirmed,
        (SELECT min(m.number) FROM rowpost.spooled_message AS m WHERE m.queue_key = '{queue_key}'),
        (SELECT max(m.number) FROM rowpost.spooled_message AS m WHERE m.queue_key = '{queue_key}'),
        s.taken_at
    FROM rowpost.spool AS s
    WHERE s.queue_key = '{queue_key}';
END
$rowpost$;
