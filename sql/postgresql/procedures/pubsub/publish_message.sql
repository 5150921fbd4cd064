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
    v_topic text;
    v_addresses text[] := '{}';
    v_queue_key text;
    v_queue_keys text[] := '{}';
BEGIN
    -- one at a time: of an array of topics, the planner expects so many subscribers that it reads all subscriptions
    FOREACH v_topic IN ARRAY p_topics LOOP
        v_addresses := v_addresses || ARRAY(SELECT r.queueaddress::text FROM public."SubscriptionRouting" AS r WHERE r.topic = v_topic);
    END LOOP;

    IF EXISTS (SELECT FROM rowpost.subscription_table AS t) THEN
        v_addresses := v_addresses || ARRAY(SELECT o.queue_address FROM rowpost._read_other_subscriptions(p_topics) AS o);
    END IF;

    FOR queue_address IN SELECT DISTINCT a.queue_address FROM unnest(v_addresses) AS a (queue_address) ORDER BY 1 LOOP
        v_queue_key := rowpost._queue_at(queue_address);
        CONTINUE WHEN v_queue_key = ANY (v_queue_keys); -- another spelling of its name is subscribed too
        v_queue_keys := v_queue_keys || v_queue_key;
        stored := rowpost._has_table(v_queue_key);

        IF stored THEN
            EXECUTE format('SELECT rowpost.%I($1, $2, p_time_to_be_received_ms => $3)', 'send_message:' || v_queue_key)
            USING p_headers, p_body, p_time_to_be_received_ms;
        END IF;

        RETURN NEXT;
    END LOOP;
END
$rowpost$;
