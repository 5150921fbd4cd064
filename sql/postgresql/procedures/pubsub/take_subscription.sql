CREATE OR REPLACE FUNCTION rowpost.take_subscription(
    p_publisher text, -- canonical address of the queue whose endpoint got the message
    p_endpoint text, -- the subscriber, whose instances share one subscription
    p_topic text, -- the event's full type name
    p_queue_address text, -- canonical address of the subscriber's queue
    p_ends boolean -- true: the subscriber does not want the topic any more; null as false
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Subscribes another endpoint to a topic, moves its subscription to another queue, or ends it, as its message to a publisher asks.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
The caller must be allowed to receive from the publisher's queue. Because everybody can publish to a subscribed queue, it must also be
allowed to send to the subscriber's queue, so that it reaches no queue that it cannot reach anyway; a grant of the right to send is how
an operator lets an endpoint subscribe. If there is a queue with the endpoint's name and the subscriber's queue is another one, the
caller must be allowed to receive from the former. What others subscribed is safe: rowpost.taken_subscription has what each publisher
recorded, and a publisher moves and ends nothing else, operators included. A subscription that is there already is left as it is.
*/
DECLARE
    v_ends constant boolean := coalesce(p_ends, false);
    v_endpoint_key text;
    v_subscriber_key constant text := rowpost._queue_at(p_queue_address);
    v_current text;
    v_own bigint;
    v_others bigint;
BEGIN
    IF coalesce(p_endpoint, '') = '' OR coalesce(p_topic, '') = '' OR coalesce(p_queue_address, '') = ''
       OR length(p_endpoint) > 200 OR length(p_topic) > 200 OR length(p_queue_address) > 200
       OR length(p_publisher) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP011', MESSAGE =
            'The subscription cannot be stored: publisher, endpoint, topic and queue must be given, with at most 200 characters each.';
    END IF;

    PERFORM rowpost._require_subscriber(p_publisher);

    SELECT q.queue_key INTO v_endpoint_key FROM rowpost.queue AS q WHERE q.queue_name = p_endpoint;

    IF v_endpoint_key <> coalesce(v_subscriber_key, '') THEN
        PERFORM rowpost._require_receiver(v_endpoint_key, p_endpoint);
    END IF;

    -- the caller is the login, or the role of its last SET ROLE
    IF NOT v_ends AND NOT rowpost._is_operator() AND NOT EXISTS (
        SELECT
        FROM pg_proc AS p
        WHERE p.proname = ('send_message:' || v_subscriber_key)::name
          AND p.pronamespace = 'rowpost'::regnamespace
          AND has_function_privilege(
              CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END, p.oid, 'EXECUTE')
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP025', MESSAGE = format(
            'The login %s may not subscribe %L: it may not send to that queue and is no operator.'
            ' Declare the queue below external if it is not registered, and let an operator run rowpost queue grant --send-to.',
            session_user, p_queue_address);
    END IF;

    LOOP
        SELECT s.queueaddress INTO v_current
        FROM public."SubscriptionRouting" AS s
        WHERE s.endpoint = p_endpoint AND s.topic = p_topic
        FOR UPDATE;

        -- what others have moved or ended since is not the publishers' any more
        DELETE FROM rowpost.taken_subscription AS t
        WHERE t.endpoint = p_endpoint AND t.topic = p_topic AND t.queue_address IS DISTINCT FROM v_current;

        EXIT WHEN v_ends OR v_current IS NOT NULL;

        INSERT INTO public."SubscriptionRouting" AS s (queueaddress, endpoint, topic)
        VALUES (p_queue_address, p_endpoint, p_topic)
        ON CONFLICT (endpoint, topic) DO NOTHING;

        EXIT WHEN FOUND; -- if not, another session has just made the subscription
    END LOOP;

    SELECT count(*) FILTER (WHERE t.publisher = p_publisher), count(*) FILTER (WHERE t.publisher <> p_publisher)
    INTO v_own, v_others
    FROM rowpost.taken_subscription AS t
    WHERE t.endpoint = p_endpoint AND t.topic = p_topic;

    IF v_own = 0 AND (v_ends AND v_current IS NOT NULL OR NOT v_ends AND v_current <> p_queue_address)
       OR v_others > 0 AND NOT v_ends AND v_current <> p_queue_address THEN
        RAISE EXCEPTION USING ERRCODE = 'RP025', MESSAGE = format(
            'The subscription of %L to %L stays as it is: %L did not record it, or not alone.'
            ' Let the subscriber''s own login or an operator change it.',
            p_endpoint, p_topic, p_publisher);
    END IF;

    IF v_ends THEN
        DELETE FROM rowpost.taken_subscription AS t
        WHERE t.endpoint = p_endpoint AND t.topic = p_topic AND t.publisher = p_publisher;

        IF v_own = 1 AND v_others = 0 THEN
            DELETE FROM public."SubscriptionRouting" AS s WHERE s.endpoint = p_endpoint AND s.topic = p_topic;
        END IF;

        RETURN;
    END IF;

    IF v_current <> p_queue_address THEN
        UPDATE public."SubscriptionRouting" AS s
        SET queueaddress = p_queue_address
        WHERE s.endpoint = p_endpoint AND s.topic = p_topic;
    END IF;

    IF v_own = 1 THEN
        UPDATE rowpost.taken_subscription AS t
        SET queue_address = p_queue_address
        WHERE t.endpoint = p_endpoint AND t.topic = p_topic AND t.publisher = p_publisher;
    ELSIF v_current IS NULL OR v_others > 0 THEN
        INSERT INTO rowpost.taken_subscription (endpoint, topic, publisher, queue_address)
        VALUES (p_endpoint, p_topic, p_publisher, p_queue_address);
    END IF;
END
$rowpost$;
