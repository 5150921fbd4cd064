CREATE OR REPLACE FUNCTION rowpost."read_spool:{queue_key}"(
    p_above bigint, -- only messages with a higher number
    p_upto bigint, -- and not above this one
    p_with_headers boolean DEFAULT NULL, -- null: yes; without: ''
    p_with_body boolean DEFAULT NULL -- null: yes; without: null
) RETURNS TABLE (
    id uuid, correlation_id text, reply_to_address text, recoverable boolean, expires timestamp, headers text, body bytea,
    row_version bigint
)
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Reads a range of the spool, as read_range reads one of the queue.
It may be called again: the messages stay the same until drop_spool.
Atomicity: reads only.
Locking:   none.
Order:     by number.
*/
SELECT
    m.id,
    m.correlation_id,
    m.reply_to_address,
    m.recoverable,
    m.expires,
    CASE WHEN coalesce(p_with_headers, true) THEN m.headers ELSE '' END,
    CASE WHEN coalesce(p_with_body, true) THEN m.body END,
    m.row_version
FROM rowpost.spooled_message AS m
WHERE m.queue_key = '{queue_key}'
  AND m.number > p_above
  AND m.number <= p_upto
ORDER BY m.number;
$rowpost$;
