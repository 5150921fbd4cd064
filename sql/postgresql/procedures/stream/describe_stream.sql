CREATE OR REPLACE FUNCTION rowpost."describe_stream:{queue_key}"() RETURNS TABLE (
    stream_identity text, first_row_version bigint, last_row_version bigint, settled_row_version bigint, writers text,
    purged_row_version bigint, consumers integer, on_standby boolean
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Returns the identity of the queue's table, its last assigned row version, and the transactions that may still commit one.
A row version is assigned before its transaction commits. A reader that continues after the highest row version that it
sees would therefore skip the rows of slower writers.
A writer holds its lock on the table from before it gets a row version until it ends. The locks are read after the last
row version: a transaction that is not among the writers has committed everything up to it.
A standby does not show the locks of the primary's writers. There settled_row_version is null, and on_standby is true.
Atomicity: reads only.
Locking:   none.
*/
DECLARE
    v_table CONSTANT regclass := '{queue_table}'::regclass;
    -- First the sequence, then the locks: in the other order a writer that starts in between would be missed.
    v_last CONSTANT bigint := coalesce(pg_sequence_last_value(pg_get_serial_sequence('{queue_table}', 'seq')), 0);
    v_writers jsonb;
    v_first bigint;
    v_worker text;
BEGIN
    SELECT coalesce(jsonb_agg(DISTINCT l.virtualtransaction), '[]')
    INTO v_writers
    FROM pg_locks AS l
    WHERE l.locktype = 'relation'
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      AND l.relation = v_table
      AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND l.pid IS DISTINCT FROM pg_backend_pid();

    SELECT q.seq INTO v_first FROM {queue_table} AS q ORDER BY q.seq LIMIT 1;
    SELECT left('rowpost worker ' || r.queue_name, 60) INTO v_worker FROM rowpost.queue AS r WHERE r.queue_key = '{queue_key}';

    RETURN QUERY
    SELECT
        format('%s/%s#%s', current_database(), v_table, v_table::oid),
        v_first,
        v_last,
        CASE WHEN v_writers = '[]' AND NOT pg_is_in_recovery() THEN v_last END,
        v_writers::text,
        (SELECT p.row_version FROM rowpost.purge AS p WHERE p.queue_key = '{queue_key}'),
        (
            SELECT count(*)::integer
            FROM pg_stat_activity AS a
            WHERE a.datname = current_database()
              AND (left(a.application_name, 60) = v_worker OR starts_with(a.application_name, v_worker || ' '))
        ),
        pg_is_in_recovery();
END
$rowpost$;
