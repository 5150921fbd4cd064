-- Removes the queue's procedures and its registry entry. Its table and its messages stay.
{drop_queue_procedures}
-- and with its function the trigger on the table
DROP FUNCTION IF EXISTS rowpost."notify_inserts:{queue_key}" CASCADE;
DO $rowpost$
DECLARE
    v_role text;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['rowpost_operator', 'rowpost_body_reader'] LOOP
        IF to_regclass('{queue_table}') IS NOT NULL AND to_regrole(v_role) IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON %s FROM %I', '{queue_table}'::regclass, v_role);
        END IF;
    END LOOP;
END
$rowpost$;
-- An earlier version made a publication of the queue's inserts.
DROP PUBLICATION IF EXISTS "rowpost_log:{queue_key}";
DROP SEQUENCE IF EXISTS rowpost."waiters:{queue_key}";
SELECT rowpost.unregister_queue(p_queue_name => '{queue_name}');
