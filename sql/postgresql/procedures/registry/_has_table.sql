CREATE OR REPLACE FUNCTION rowpost._has_table(p_queue_key text) RETURNS boolean
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns whether a registered queue has its table. Somebody may have dropped the table without unregistering the queue.
Atomicity: reads only.
Locking:   none that lasts.
The table of a queue in another database counts as there.
*/
BEGIN
    -- PostgreSQL has no queues in other databases
    RETURN EXISTS (
        SELECT
        FROM rowpost.queue AS q
        WHERE q.queue_key = p_queue_key
          AND to_regclass(format('%I.%I', q.schema_name, q.table_name)) IS NOT NULL
    );
END
$rowpost$;
