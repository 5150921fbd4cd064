CREATE OR REPLACE FUNCTION rowpost.unsubscribe(
    p_endpoint text,
    p_topic text
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Ends an endpoint's subscription to a topic, in every table of subscriptions; does nothing if there is none.
Atomicity: in the caller's transaction.
Locking:   one key of each table of subscriptions.
The caller must be allowed to receive from the subscribed queue, or be an operator.
*/
BEGIN
    PERFORM rowpost._write_subscriptions(p_endpoint, p_topic);
END
$rowpost$;
