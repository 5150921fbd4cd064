-- Takes the queue's procedures and its registry entry away; its table and its messages stay.
DROP FUNCTION IF EXISTS rowpost."send_message:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."send_messages:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."receive_messages:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."receive_message:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."peek_queue:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."watch_queue:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."browse_messages:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."purge_queue:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."purge_expired:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."queue_metrics:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."maintain_queue:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."delay_message:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."move_due_messages:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."receive_due_messages:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."read_range:{queue_key}";
DO $rowpost$
BEGIN
    IF to_regclass('{queue_table}') IS NOT NULL THEN
        REVOKE SELECT (id, expires, headers, body, seq) ON {queue_table} FROM rowpost_operator, rowpost_reader;
    END IF;
END
$rowpost$;
DROP FUNCTION IF EXISTS rowpost."describe_stream:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."describe_spool:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."move_to_spool:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."confirm_spool:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."read_spool:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."drop_spool:{queue_key}";
DROP FUNCTION IF EXISTS rowpost."send_staged:{queue_key}";
DROP SEQUENCE IF EXISTS rowpost."sleepers:{queue_key}";
SELECT rowpost.unregister_queue(p_queue_name => '{queue_name}');
