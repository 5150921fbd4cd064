CREATE OR REPLACE FUNCTION rowpost.publish_message(
    p_topics text[], -- the event's type and every type that it also is
    p_headers text, -- JSON object of strings
    p_body bytea DEFAULT NULL,
    p_time_to_be_received_ms bigint DEFAULT NULL -- milliseconds until a copy expires, by this server's clock
) RETURNS TABLE (queue_address text, stored boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Sends one copy of an event to every queue that is subscribed to any of its topics, in any table of subscriptions,
and returns the queues.
The server stores all copies. A queue with stored = false is not registered here, or its table is gone; the caller uses
send_to_subscriber for it.
Atomicity: in the caller's transaction, one INSERT a queue.
Locking:   only the new rows.
Order:     by queue.
*/
DECLARE
    v_destination record;
    v_others text[];
BEGIN
    IF EXISTS (SELECT FROM rowpost.subscription_table AS t) THEN
        SELECT array_agg(o.queue_address) INTO v_others FROM rowpost._read_other_subscriptions(p_topics) AS o;
    END IF;

    FOR v_destination IN
        -- one row for each queue, also if several spellings of its name are subscribed
        SELECT min(s.queue_address) AS queue_address, q.queue_key
        FROM (
            SELECT r.queueaddress::text AS queue_address FROM public."SubscriptionRouting" AS r WHERE r.topic = ANY (p_topics)
            UNION ALL
            SELECT o.queue_address FROM unnest(v_others) AS o (queue_address)
        ) AS s
        LEFT JOIN rowpost.queue AS q
            ON s.queue_address IN (
                q.queue_name,
                q.table_name || '@[' || replace(q.schema_name, ']', ']]') || ']',
                format('"%s"."%s"', replace(q.schema_name, '"', '""'), replace(q.table_name, '"', '""'))
            )
        GROUP BY q.queue_key, CASE WHEN q.queue_key IS NULL THEN s.queue_address END
        ORDER BY 1
    LOOP
        queue_address := v_destination.queue_address;
        stored := rowpost._has_table(v_destination.queue_key);

        IF stored THEN
            EXECUTE format('SELECT rowpost.%I($1, $2, p_time_to_be_received_ms => $3)', 'send_message:' || v_destination.queue_key)
            USING p_headers, p_body, p_time_to_be_received_ms;
        END IF;

        RETURN NEXT;
    END LOOP;
END
$rowpost$;
