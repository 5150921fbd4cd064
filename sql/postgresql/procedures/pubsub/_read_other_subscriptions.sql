CREATE OR REPLACE FUNCTION rowpost._read_other_subscriptions(
    p_topics text[] DEFAULT NULL -- NULL: all
) RETURNS TABLE (topic text, endpoint text, queue_address text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Reads the subscriptions in all registered tables of subscriptions, all or those to the given topics.
Atomicity: reads only.
Locking:   none that lasts.
*/
DECLARE
    v_table_key text;
BEGIN
    FOR v_table_key IN SELECT t.table_key FROM rowpost.subscription_table AS t ORDER BY t.table_key LOOP
        RETURN QUERY EXECUTE format('SELECT * FROM rowpost.%I($1)', '_read_subscriptions:' || v_table_key) USING p_topics;
    END LOOP;
END
$rowpost$;
