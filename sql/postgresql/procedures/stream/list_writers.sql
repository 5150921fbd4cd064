CREATE OR REPLACE FUNCTION rowpost."list_writers:{queue_key}"() RETURNS TABLE (
    writer text, process integer, since timestamp, program text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns the transactions that describe_stream names as writers, with the sessions that have them open.
Atomicity: reads only.
Locking:   none.
Order:     the oldest transaction first.
*/
BEGIN
    RETURN QUERY
    SELECT DISTINCT
        l.virtualtransaction,
        l.pid,
        coalesce(a.xact_start, x.prepared) AT TIME ZONE 'UTC' AS started,
        coalesce(a.application_name, 'prepared transaction ' || x.gid)
    FROM pg_locks AS l
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_locks AS o
        ON l.pid IS NULL AND o.pid IS NULL AND o.locktype = 'transactionid' AND o.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_prepared_xacts AS x ON x.transaction = o.transactionid
    WHERE l.locktype = 'relation'
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      AND l.relation = '{queue_table}'::regclass
      AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
      AND l.pid IS DISTINCT FROM pg_backend_pid()
    ORDER BY started, l.virtualtransaction;
END
$rowpost$;
