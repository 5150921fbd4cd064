-- What operators and readers may run on this queue. Endpoints are granted one by one: rowpost queue grant.
IF OBJECT_ID(N'rowpost.[send_message:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[send_message:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[send_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[send_messages:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[receive_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[receive_messages:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[receive_message:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[receive_message:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[peek_queue:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[peek_queue:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[watch_queue:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[watch_queue:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[browse_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[browse_messages:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[purge_queue:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[purge_queue:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[purge_expired:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[purge_expired:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[delay_message:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[delay_message:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[move_due_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[move_due_messages:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[receive_due_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[receive_due_messages:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[queue_metrics:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[queue_metrics:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[queue_metrics:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[queue_metrics:{queue_key}] TO rowpost_reader;
IF OBJECT_ID(N'rowpost.[maintain_queue:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[maintain_queue:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[peek_queue:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[peek_queue:{queue_key}] TO rowpost_reader;
IF OBJECT_ID(N'rowpost.[browse_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[browse_messages:{queue_key}] TO rowpost_reader;
-- To see the table in the catalog, for check_queue and list_queues; a table that is not ours has its own owner.
IF OBJECT_ID(N'rowpost.[receive_messages:{queue_key}]', N'P') IS NOT NULL
    EXEC (N'GRANT VIEW DEFINITION ON {queue_table} TO rowpost_endpoint, rowpost_operator, rowpost_reader;');
GO
