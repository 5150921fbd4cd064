CREATE OR REPLACE FUNCTION rowpost.subscribe(
    p_endpoint text, -- the logical endpoint: its instances share one subscription
    p_topic text, -- the event's full type name
    p_queue_address text -- canonical address of the endpoint's queue
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Subscribes an endpoint to a topic, or moves its subscription to another queue.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
The caller must be allowed to receive from the queue, from the queue that it takes the subscription from, and from the queue
with the endpoint's name, if there is one. Operators may subscribe every queue.
*/
DECLARE
    v_old_address text;
    v_endpoint_key text;
BEGIN
    IF coalesce(p_endpoint, '') = '' OR coalesce(p_topic, '') = '' OR coalesce(p_queue_address, '') = ''
       OR length(p_endpoint) > 200 OR length(p_topic) > 200 OR length(p_queue_address) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP011', MESSAGE =
            'The subscription cannot be stored: endpoint, topic and queue must be given, with at most 200 characters each.';
    END IF;

    SELECT q.queue_key INTO v_endpoint_key FROM rowpost.queue AS q WHERE q.queue_name = p_endpoint;

    IF v_endpoint_key IS NOT NULL THEN
        PERFORM rowpost._require_receiver(v_endpoint_key, p_endpoint);
    END IF;

    PERFORM rowpost._require_subscriber(p_queue_address);

    LOOP
        INSERT INTO public."SubscriptionRouting" AS s (queueaddress, endpoint, topic)
        VALUES (p_queue_address, p_endpoint, p_topic)
        ON CONFLICT (endpoint, topic) DO NOTHING;

        EXIT WHEN FOUND;

        SELECT s.queueaddress INTO v_old_address
        FROM public."SubscriptionRouting" AS s
        WHERE s.endpoint = p_endpoint AND s.topic = p_topic
        FOR UPDATE;

        CONTINUE WHEN NOT FOUND; -- another session has ended the subscription meanwhile

        IF v_old_address <> p_queue_address THEN
            PERFORM rowpost._require_subscriber(v_old_address);
            UPDATE public."SubscriptionRouting" AS s
            SET queueaddress = p_queue_address
            WHERE s.endpoint = p_endpoint AND s.topic = p_topic;
        END IF;

        EXIT;
    END LOOP;
END
$rowpost$;
