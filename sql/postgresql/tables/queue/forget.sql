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
DROP SEQUENCE IF EXISTS rowpost."sleepers:{queue_key}";
SELECT rowpost.unregister_queue(p_queue_name => '{queue_name}');
