-- Returns one failed message from the error queue to the queue where it failed, headers and body as they are: in one
-- transaction, so that it is in the one queue or in the other. PostgreSQL. Put the row's number in the place of 0; the
-- first column of inspect_queue.sql and of `rowpost errors list` has it.
DO $rowpost$
DECLARE
    v_row_version CONSTANT bigint := 0;
    v_message record;
    v_queue_name text;
BEGIN
    SELECT r.id, r.headers, r.body INTO v_message
    FROM rowpost."receive_message:error"(v_row_version) AS r;

    IF NOT FOUND THEN
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
END
$rowpost$;
