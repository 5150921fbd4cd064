CREATE OR REPLACE FUNCTION rowpost."_read_subscriptions:{subscription_key}"(
    p_topics text[] DEFAULT NULL -- NULL: all
) RETURNS TABLE (topic text, endpoint text, queue_address text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Reads the subscriptions in one table of subscriptions, all or those to the given topics.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    IF p_topics IS NULL THEN
        RETURN QUERY SELECT s.topic::text, s.endpoint::text, s.queueaddress::text FROM {subscription_table} AS s;
    ELSE
        RETURN QUERY
        SELECT s.topic::text, s.endpoint::text, s.queueaddress::text
        FROM {subscription_table} AS s
        WHERE s.topic = ANY (p_topics);
    END IF;
END
$rowpost$;
