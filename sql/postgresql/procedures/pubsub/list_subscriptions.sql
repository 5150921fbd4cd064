CREATE OR REPLACE FUNCTION rowpost.list_subscriptions() RETURNS TABLE (topic text, endpoint text, queue_address text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the subscriptions in all tables of subscriptions; one that several tables have is listed once.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by topic, then endpoint.
*/
BEGIN
    RETURN QUERY
    SELECT s.topic::text, s.endpoint::text, s.queueaddress::text
    FROM public."SubscriptionRouting" AS s
    UNION
    SELECT o.topic, o.endpoint, o.queue_address
    FROM rowpost._read_other_subscriptions() AS o
    ORDER BY 1, 2, 3;
END
$rowpost$;
