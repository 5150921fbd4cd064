-- What operators and readers may run on this queue. Endpoints are granted one by one: rowpost queue grant.
-- Babelfish: without VIEW DEFINITION, which it has not; its catalog is open to all. It chains no ownership: the rights
-- on the tables stand at the end.
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
IF OBJECT_ID(N'rowpost.[delay_message:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[delay_message:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[move_due_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[move_due_messages:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[receive_due_messages:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[receive_due_messages:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[read_range:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[read_range:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[describe_stream:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[describe_stream:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[describe_spool:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[describe_spool:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[move_to_spool:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[move_to_spool:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[confirm_spool:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[confirm_spool:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[read_spool:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[read_spool:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[drop_spool:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[drop_spool:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[send_staged:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[send_staged:{queue_key}] TO rowpost_operator;
IF OBJECT_ID(N'rowpost.[read_range:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[read_range:{queue_key}] TO rowpost_reader;
IF OBJECT_ID(N'rowpost.[describe_stream:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[describe_stream:{queue_key}] TO rowpost_reader;
IF OBJECT_ID(N'rowpost.[describe_spool:{queue_key}]', N'P') IS NOT NULL
    GRANT EXECUTE ON rowpost.[describe_spool:{queue_key}] TO rowpost_reader;
GO
IF OBJECT_ID(N'{queue_table}', N'U') IS NOT NULL
BEGIN
    GRANT SELECT, INSERT, UPDATE, DELETE ON {queue_table} TO rowpost_operator;
    GRANT SELECT ON {queue_table} TO rowpost_reader;
END;
GO
IF OBJECT_ID(N'rowpost.[delay_message:{queue_key}]', N'P') IS NOT NULL
    GRANT SELECT, INSERT, UPDATE, DELETE ON {delayed_table} TO rowpost_operator;
GO
