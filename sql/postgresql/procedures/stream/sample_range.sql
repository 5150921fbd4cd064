CREATE OR REPLACE FUNCTION rowpost."sample_range:{queue_key}"(
    p_above bigint, -- only rows with a higher row version
    p_upto bigint -- and not above this one
) RETURNS TABLE (row_version bigint, bytes bigint, messages bigint)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns row version and size of some messages of a range, so that a reader can divide it into parts with about the same work.
The messages of some pages are measured, so that the duration does not depend on the number of messages. A range that is a
small part of the table may have none.
Atomicity: reads only.
Locking:   none; rows that receivers have locked are returned too, until the receivers commit.
Order:     none.
*/
DECLARE
    v_pages CONSTANT bigint := pg_relation_size('{queue_table}'::regclass) / current_setting('block_size')::integer;
    v_share CONSTANT double precision := least(1.0, 400.0 / greatest(v_pages, 1));
BEGIN
    RETURN QUERY
    SELECT
        q.seq::bigint,
        octet_length(q.headers)::bigint + coalesce(octet_length(q.body), 0),
        greatest(round(1 / v_share), 1)::bigint
    FROM {queue_table} AS q TABLESAMPLE system (100 * v_share)
    WHERE q.seq > p_above
      AND q.seq <= p_upto;
END
$rowpost$;
