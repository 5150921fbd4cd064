CREATE OR REPLACE FUNCTION rowpost."read_range:{queue_key}"(
    p_above bigint, -- only rows with a higher row version
    p_upto bigint, -- and not above this one
    p_with_headers boolean DEFAULT NULL, -- null: yes; without: ''
    p_with_body boolean DEFAULT NULL, -- null: yes; without: null
    p_ids text[] DEFAULT NULL, -- only these
    p_headers_contain text DEFAULT NULL -- only messages whose headers contain this text
) RETURNS TABLE (
    id uuid, correlation_id text, reply_to_address text, recoverable boolean, expires timestamp, headers text, body bytea,
    row_version bigint
)
LANGUAGE sql
STABLE
AS $rowpost$
/*
Reads a range of messages without removing them; the number is not limited.
Runs as its caller and has no settings, so that the server inlines it into a query that has it in FROM. Rows are read when
they are fetched, and unused columns are not read. Therefore rowpost_operator and rowpost_body_reader may read these columns of the table.
Atomicity: reads only.
Locking:   none; rows that receivers have locked are read too, until the receivers commit.
Order:     none.
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
  AND (p_headers_contain IS NULL OR pg_catalog.strpos(q.headers, p_headers_contain) > 0);
$rowpost$;
