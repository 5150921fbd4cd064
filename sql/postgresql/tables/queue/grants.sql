-- What operators and readers may run on this queue. Endpoints are granted one by one: rowpost queue grant.
DO $rowpost$
BEGIN
    IF to_regproc('rowpost."send_message:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."send_message:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."send_message:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."send_messages:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."send_messages:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."send_messages:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."receive_messages:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."receive_messages:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."receive_messages:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."receive_message:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."receive_message:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."receive_message:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."peek_queue:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."peek_queue:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."peek_queue:{queue_key}" TO rowpost_operator;
        GRANT EXECUTE ON FUNCTION rowpost."peek_queue:{queue_key}" TO rowpost_reader;
    END IF;
    IF to_regproc('rowpost."watch_queue:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."watch_queue:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."watch_queue:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."browse_messages:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."browse_messages:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."browse_messages:{queue_key}" TO rowpost_operator;
        GRANT EXECUTE ON FUNCTION rowpost."browse_messages:{queue_key}" TO rowpost_reader;
    END IF;
    IF to_regproc('rowpost."purge_queue:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."purge_queue:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."purge_queue:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."purge_expired:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."purge_expired:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."purge_expired:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."delay_message:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."delay_message:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."delay_message:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."move_due_messages:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."move_due_messages:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."move_due_messages:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."receive_due_messages:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."receive_due_messages:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."receive_due_messages:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."queue_metrics:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."queue_metrics:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."queue_metrics:{queue_key}" TO rowpost_operator;
        GRANT EXECUTE ON FUNCTION rowpost."queue_metrics:{queue_key}" TO rowpost_reader;
    END IF;
    IF to_regproc('rowpost."read_range:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."read_range:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."read_range:{queue_key}" TO rowpost_operator;
        GRANT EXECUTE ON FUNCTION rowpost."read_range:{queue_key}" TO rowpost_reader;
        -- it runs as its caller, so that a query with it is planned as one whole; other columns and other verbs stay closed
        GRANT SELECT (id, expires, headers, body, seq) ON {queue_table} TO rowpost_operator, rowpost_reader;
    END IF;
    IF to_regproc('rowpost."describe_stream:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."describe_stream:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."describe_stream:{queue_key}" TO rowpost_operator;
        GRANT EXECUTE ON FUNCTION rowpost."describe_stream:{queue_key}" TO rowpost_reader;
    END IF;
    IF to_regproc('rowpost."describe_spool:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."describe_spool:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."describe_spool:{queue_key}" TO rowpost_operator;
        GRANT EXECUTE ON FUNCTION rowpost."describe_spool:{queue_key}" TO rowpost_reader;
    END IF;
    IF to_regproc('rowpost."move_to_spool:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."move_to_spool:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."move_to_spool:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."confirm_spool:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."confirm_spool:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."confirm_spool:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."read_spool:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."read_spool:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."read_spool:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."drop_spool:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."drop_spool:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."drop_spool:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."send_staged:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."send_staged:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."send_staged:{queue_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."maintain_queue:{queue_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."maintain_queue:{queue_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."maintain_queue:{queue_key}" TO rowpost_operator;
        -- to run the VACUUM and REINDEX that it proposes; before PostgreSQL 17 only the table's owner may
        IF current_setting('server_version_num')::integer >= 170000 THEN
            EXECUTE format('GRANT MAINTAIN ON %s TO rowpost_operator', '{queue_table}'::regclass);
        END IF;
    END IF;
END
$rowpost$;
