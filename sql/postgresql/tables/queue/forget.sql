-- Removes the queue's procedures and its registry entry. Its table and its messages stay.
{drop_queue_procedures}
-- and with its function the trigger on the table
DROP FUNCTION IF EXISTS rowpost."notify_inserts:{queue_key}" CASCADE;
DO $rowpost$
BEGIN
    IF to_regclass('{queue_table}') IS NOT NULL THEN
        REVOKE SELECT (id, expires, headers, body, seq) ON {queue_table} FROM rowpost_operator, rowpost_body_reader;
    END IF;
END
$rowpost$;
-- An earlier version made a publication of the queue's inserts.
DROP PUBLICATION IF EXISTS "rowpost_log:{queue_key}";
DROP SEQUENCE IF EXISTS rowpost."waiters:{queue_key}";
SELECT rowpost.unregister_queue(p_queue_name => '{queue_name}');
