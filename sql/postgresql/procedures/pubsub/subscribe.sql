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
*/
BEGIN
    IF coalesce(p_endpoint, '') = '' OR coalesce(p_topic, '') = '' OR coalesce(p_queue_address, '') = ''
       OR length(p_endpoint) > 200 OR length(p_topic) > 200 OR length(p_queue_address) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP011', MESSAGE =
            'The subscription cannot be stored: endpoint, topic and queue must be given, with at most 200 characters each.';
    END IF;

    INSERT INTO public."SubscriptionRouting" AS s (queueaddress, endpoint, topic)
    VALUES (p_queue_address, p_endpoint, p_topic)
    ON CONFLICT (endpoint, topic) DO UPDATE
    SET queueaddress = excluded.queueaddress
    WHERE s.queueaddress <> excluded.queueaddress;
END
$rowpost$;
