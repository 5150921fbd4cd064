CREATE OR REPLACE FUNCTION rowpost."describe_stream:{queue_key}"() RETURNS TABLE (
    stream_identity text, first_row_version bigint, last_row_version bigint, settled_row_version bigint, writers text,
    purged_row_version bigint, consumers integer
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $rowpost$
/*
Says which table the queue is, how far its row versions are drawn, and who may still commit one of those.
A row version is drawn before its transaction commits: a reader that goes by the highest
one that it sees steps over slower writers' rows.
A writer holds its lock on the table from before it draws until it ends, so that whoever is not among the writers, looked
at after the last row version, has committed all that it drew up to there.
Atomicity: reads only.
Locking:   none.
*/
DECLARE
    v_table CONSTANT regclass := '{queue_table}'::regclass;
    -- the sequence first, then the locks: the other way round a writer could draw in between and not be seen
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
        CASE WHEN v_writers = '[]' THEN v_last END,
        v_writers::text,
        (SELECT p.row_version FROM rowpost.purge AS p WHERE p.queue_key = '{queue_key}'),
        (
            SELECT count(*)::integer
            FROM pg_stat_activity AS a
            WHERE a.datname = current_database()
              AND (left(a.application_name, 60) = v_worker OR starts_with(a.application_name, v_worker || ' '))
        );
END
$rowpost$;
