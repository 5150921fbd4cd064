CREATE OR REPLACE FUNCTION rowpost.list_subscriptions() RETURNS TABLE (topic text, endpoint text, queue_address text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the subscriptions.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by topic, then endpoint.
*/
BEGIN
    RETURN QUERY
    SELECT s.topic::text, s.endpoint::text, s.queueaddress::text
    FROM public."SubscriptionRouting" AS s
    ORDER BY s.topic, s.endpoint;
END
$rowpost$;
