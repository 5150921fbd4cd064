CREATE OR REPLACE FUNCTION rowpost."read_range:{queue_key}"(
    p_above bigint, -- only rows with a higher row version
    p_upto bigint, -- and none with a higher one than this
    p_with_headers boolean DEFAULT NULL, -- null: yes; without: ''
    p_with_body boolean DEFAULT NULL, -- null: yes; without: null
    p_ids text[] DEFAULT NULL, -- only these
    p_headers_contain text DEFAULT NULL -- only those whose headers contain this text
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
Reads a range of messages without taking them, however many.
Row by row as they are fetched, in one snapshot, where the call stands in the select list: a function of this language
stores nothing on its way there.
Atomicity: reads only.
Locking:   none; rows that receivers hold are read as well: they are there until their receivers commit.
Order:     by seq.
*/
SELECT
    q.id,
    NULL::text,
    NULL::text,
    true,
    q.expires,
    CASE WHEN coalesce(p_with_headers, true) THEN q.headers ELSE '' END,
    CASE WHEN coalesce(p_with_body, true) THEN q.body END,
    q.seq::bigint
FROM {queue_table} AS q
WHERE q.seq > p_above
  AND q.seq <= p_upto
  AND (p_ids IS NULL OR q.id = ANY (p_ids::uuid[]))
  AND (p_headers_contain IS NULL OR strpos(q.headers, p_headers_contain) > 0)
ORDER BY q.seq;
$rowpost$;
