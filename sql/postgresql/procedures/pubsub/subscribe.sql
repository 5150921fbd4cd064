CREATE OR REPLACE FUNCTION rowpost.subscribe(
    p_endpoint text, -- the logical endpoint: its instances share one subscription
    p_topic text, -- the event's full type name
    p_queue_address text, -- canonical address of the endpoint's queue
    p_table_key text DEFAULT NULL -- the table of subscriptions for a new one; NULL: the default table
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Subscribes an endpoint to a topic, or moves its subscription to another queue.
A subscription that other tables of subscriptions have too moves there as well.
Atomicity: in the caller's transaction.
Locking:   one key of each table of subscriptions.
The caller must be allowed to receive from the queue, from the queue that it takes the subscription from, and from the queue
with the endpoint's name, if there is one. Operators may subscribe every queue.
*/
DECLARE
    v_endpoint_key text;
BEGIN
    IF coalesce(p_endpoint, '') = '' OR coalesce(p_topic, '') = '' OR coalesce(p_queue_address, '') = ''
       OR length(p_endpoint) > 200 OR length(p_topic) > 200 OR length(p_queue_address) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP011', MESSAGE =
            'The subscription cannot be stored: endpoint, topic and queue must be given, with at most 200 characters each.';
    END IF;

    IF p_table_key IS NOT NULL AND NOT EXISTS (SELECT FROM rowpost.subscription_table AS t WHERE t.table_key = p_table_key) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP011', MESSAGE = format(
            'The subscription cannot be stored: no table of subscriptions is registered as ''%s''. Run rowpost apply.', p_table_key);
    END IF;

    SELECT q.queue_key INTO v_endpoint_key FROM rowpost.queue AS q WHERE q.queue_name = p_endpoint;

    IF v_endpoint_key IS NOT NULL THEN
        PERFORM rowpost._require_receiver(v_endpoint_key, p_endpoint);
    END IF;

    PERFORM rowpost._require_subscriber(p_queue_address);
    PERFORM rowpost._write_subscriptions(p_endpoint, p_topic, p_queue_address, p_table_key);
END
$rowpost$;
