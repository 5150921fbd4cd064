CREATE OR REPLACE FUNCTION rowpost."queue_metrics:{queue_key}"(
    p_after_row_version bigint DEFAULT NULL -- search the oldest message, and count, only above this row version
) RETURNS TABLE (
    depth bigint, oldest_age_ms bigint, enqueued bigint, dequeued bigint, expired integer,
    table_bytes bigint, index_bytes bigint, dead_rows bigint, measured_at timestamp, leased integer
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Returns depth, age, counters and sizes of the queue from the server's metadata, its first rows and its first expired rows.
Up to 1,000 waiting messages are counted; the metadata gives only a depth above this.
Atomicity: reads only.
Locking:   none. Messages that receivers lock are not counted, as in peek_queue. The oldest message may be one of them.
Rights:    runs as the owner, because a reader has no right to the table.
Counters start when the server's statistics are reset. They may be late, and lose what arrives out of order.
*/
DECLARE
    v_table CONSTANT regclass := '{queue_table}'::regclass;
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    v_above CONSTANT bigint := coalesce(p_after_row_version, -9223372036854775808);
    v_head integer;
    v_expired integer;
    v_leased integer;
    v_sent text;
    v_age_ms bigint;
BEGIN
    SELECT substring(q.headers FROM '"NServiceBus\.TimeSent"\s*:\s*"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6}) Z"')
    INTO v_sent
    FROM {queue_table} AS q
    WHERE q.seq > v_above
    ORDER BY q.seq
    LIMIT 1;

    BEGIN
        v_age_ms := extract(epoch FROM v_now - overlay(v_sent PLACING '.' FROM 20)::timestamp) * 1000;
    EXCEPTION
        WHEN datetime_field_overflow OR invalid_datetime_format THEN
            v_age_ms := NULL; -- digits that are not a time
    END;

    SELECT p.waiting INTO v_head FROM rowpost."peek_queue:{queue_key}"(1000, p_after_row_version) AS p;

    SELECT count(*)
    INTO v_expired
    FROM (
        SELECT
        FROM {queue_table} AS q
        WHERE q.expires <= v_now
        ORDER BY q.expires
        LIMIT 1000
    ) AS head;

    -- The registry says whether the queue has a table of leases.
    IF EXISTS (SELECT FROM rowpost.queue AS r WHERE r.queue_key = '{queue_key}' AND r.lease) THEN
        SELECT count(*) INTO v_leased FROM {leased_table} AS l;
    END IF;

    RETURN QUERY
    SELECT
        CASE WHEN v_head < 1000 THEN v_head ELSE greatest(v_head, pg_stat_get_live_tuples(v_table)) END,
        CASE WHEN v_age_ms < 0 THEN 0 ELSE v_age_ms END,
        pg_stat_get_tuples_inserted(v_table),
        pg_stat_get_tuples_deleted(v_table),
        v_expired,
        pg_table_size(v_table),
        pg_indexes_size(v_table),
        pg_stat_get_dead_tuples(v_table),
        v_now,
        v_leased;
END
$rowpost$;
