CREATE OR REPLACE FUNCTION rowpost._write_subscriptions(
    p_endpoint text,
    p_topic text,
    p_queue_address text DEFAULT NULL, -- NULL ends the subscription
    p_table_key text DEFAULT NULL -- the table in which a new subscription is made; NULL: public."SubscriptionRouting"
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Changes or ends a subscription in every table of subscriptions that has it, and makes it in one of them.
Atomicity: in the caller's transaction.
Locking:   one key in each of these tables.
Order:     the default table first, then by key.
*/
DECLARE
    v_each_key text;
BEGIN
    PERFORM rowpost."_write_subscription:SubscriptionRouting"(
        p_endpoint, p_topic, p_queue_address, p_queue_address IS NOT NULL AND p_table_key IS NULL);

    FOR v_each_key IN SELECT t.table_key FROM rowpost.subscription_table AS t ORDER BY t.table_key LOOP
        EXECUTE format('SELECT rowpost.%I($1, $2, $3, $4)', '_write_subscription:' || v_each_key)
        USING p_endpoint, p_topic, p_queue_address, p_queue_address IS NOT NULL AND v_each_key IS NOT DISTINCT FROM p_table_key;
    END LOOP;
END
$rowpost$;
