CREATE OR REPLACE FUNCTION rowpost."list_leases:{queue_key}"(
    p_count integer -- 1 to 1000
) RETURNS TABLE (
    id uuid, row_version bigint, owner text, leased_at timestamp, due timestamp, progress_percent integer, progress_text text,
    headers text, body_bytes bigint
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the leased messages of the queue without their bodies: who holds each of them, since when, until when, and how far it is.
Atomicity: reads only.
Locking:   none.
Order:     the oldest lease first.
Tokens are not shown: whoever knows one may end the lease.
*/
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of leases to list must be between 1 and 1000.';
    END IF;

    RETURN QUERY
    SELECT
        l.id, l.seq, l.owner, l.leased_at::timestamp, l.due::timestamp, l.progress_percent, l.progress_text, l.headers,
        coalesce(length(l.body), 0)::bigint
    FROM {leased_table} AS l
    ORDER BY l.leased_at
    LIMIT p_count;
END
$rowpost$;
