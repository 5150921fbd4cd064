CREATE OR REPLACE FUNCTION rowpost.unsubscribe(
    p_endpoint text,
    p_topic text
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Ends an endpoint's subscription to a topic; does nothing if there is none.
Atomicity: in the caller's transaction.
Locking:   one key of the subscription table.
The caller must be allowed to receive from the subscribed queue, or be an operator.
*/
DECLARE
    v_address text;
BEGIN
    SELECT s.queueaddress INTO v_address
    FROM public."SubscriptionRouting" AS s
    WHERE s.endpoint = p_endpoint AND s.topic = p_topic
    FOR UPDATE;

    IF v_address IS NOT NULL THEN
        PERFORM rowpost._require_subscriber(v_address);
        DELETE FROM public."SubscriptionRouting" AS s WHERE s.endpoint = p_endpoint AND s.topic = p_topic;
    END IF;
END
$rowpost$;
