-- Returns one failed message from the error queue to the queue where it failed, headers and body as they are: in one
-- transaction, so that it is in the one queue or in the other. PostgreSQL. Put the row's number in the place of 0; the
-- first column of inspect_queue.sql and of `rowpost errors list` has it. The operation log gets a line. A second run finds
-- that line and changes nothing.
DO $rowpost$
DECLARE
    v_row_version CONSTANT bigint := 0;
    v_message record;
    v_queue_name text;
BEGIN
    SELECT r.id, r.headers, r.body INTO v_message
    FROM rowpost."receive_message:error"(v_row_version) AS r;

    IF NOT FOUND THEN
        IF EXISTS (
            SELECT FROM rowpost.operation_log AS o
            WHERE o.operation_name = 'retry' AND o.queue_name = 'error' AND o.details ~ format('^{"row": %s[,}]', v_row_version)
        ) THEN
            RAISE NOTICE 'The message was returned before. Nothing was changed.';
            RETURN;
        END IF;

        RAISE EXCEPTION USING ERRCODE = 'RP001',
            MESSAGE = 'No such row in the error queue, or somebody holds it. Nothing was changed.';
    END IF;

    -- the queue as it is registered here, whatever way its address is spelt
    SELECT q.queue_name INTO v_queue_name
    FROM rowpost.queue AS q
    WHERE v_message.headers::json ->> 'NServiceBus.FailedQ' IN (
        q.queue_name,
        q.table_name || '@[' || replace(q.schema_name, ']', ']]') || ']',
        format('"%s"."%s"', replace(q.schema_name, '"', '""'), replace(q.table_name, '"', '""'))
    );

    IF v_queue_name IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP001',
            MESSAGE = 'The queue where it failed is not registered here. Nothing was changed.';
    END IF;

    PERFORM rowpost.send_message(v_queue_name, v_message.headers, v_message.body, v_message.id);
    PERFORM rowpost.record_operation(
        p_operation_name => 'retry', p_client => 'return_to_source.sql', p_queue_name => 'error',
        p_message_id => v_message.headers::json ->> 'NServiceBus.MessageId', p_details => format('{"row": %s}', v_row_version),
        p_outcome => v_queue_name
    );
END
$rowpost$;
