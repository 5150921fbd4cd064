CREATE OR REPLACE FUNCTION rowpost."send_messages:{queue_key}"(
    p_headers text[],
    p_bodies bytea[],
    p_ids uuid[] DEFAULT NULL, -- null: new ids
    p_times_to_be_received_ms bigint[] DEFAULT NULL -- null: none expires
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores many messages in one statement, in the order given; all or none.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new rows; if a supervisor waits for messages, also the lock of NOTIFY while the transaction commits.
Order:     seq increases with the place in the arrays (unnest returns and INSERT stores in that order).
*/
DECLARE
    -- A random number is a system call, which is more expensive than the rest of the row: one for all, and 12 digits by place.
    v_ids CONSTANT text := left(gen_random_uuid()::text, 24);
BEGIN
    IF p_headers IS NULL
       OR coalesce(cardinality(p_bodies), 0) <> cardinality(p_headers)
       OR cardinality(p_ids) <> cardinality(p_headers)
       OR cardinality(p_times_to_be_received_ms) <> cardinality(p_headers) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP006', MESSAGE =
            'The arrays of send_messages must have the same length, and headers must not be null.';
    END IF;

    IF p_times_to_be_received_ms IS NOT NULL AND EXISTS (
        SELECT FROM unnest(p_times_to_be_received_ms) AS t (ms) WHERE t.ms NOT BETWEEN 1 AND 3155760000000
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP004', MESSAGE =
            'The time to be received must be between 1 millisecond and 100 years; leave it out for a message that never expires.';
    END IF;

    INSERT INTO {queue_table} (id, expires, headers, body)
    SELECT
        coalesce(m.id, (v_ids || to_hex(281474976710656 - m.place))::uuid),
        (clock_timestamp() AT TIME ZONE 'UTC') + m.time_to_be_received_ms * interval '1 millisecond',
        m.headers,
        m.body
    FROM unnest(p_ids, p_headers, p_bodies, p_times_to_be_received_ms)
        WITH ORDINALITY AS m (id, headers, body, time_to_be_received_ms, place);

    {notify_waiters}
END
$rowpost$;
