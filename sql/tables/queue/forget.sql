-- Takes the queue's procedures and its registry entry away; its table and its messages stay.
DROP PROCEDURE IF EXISTS rowpost.[send_message:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[send_messages:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[receive_messages:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[receive_message:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[peek_queue:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[watch_queue:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[browse_messages:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[purge_queue:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[purge_expired:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[queue_metrics:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[maintain_queue:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[delay_message:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[move_due_messages:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[receive_due_messages:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[read_range:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[describe_stream:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[describe_spool:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[move_to_spool:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[confirm_spool:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[read_spool:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[drop_spool:{queue_key}];
DROP PROCEDURE IF EXISTS rowpost.[send_staged:{queue_key}];
GO
EXEC rowpost.unregister_queue @queue_name = N'{queue_name}';
GO
