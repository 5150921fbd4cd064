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
*/
BEGIN
    DELETE FROM public."SubscriptionRouting" AS s WHERE s.endpoint = p_endpoint AND s.topic = p_topic;
END
$rowpost$;
