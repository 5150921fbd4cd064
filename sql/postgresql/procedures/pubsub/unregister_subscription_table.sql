CREATE OR REPLACE FUNCTION rowpost.unregister_subscription_table(p_table_key text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Removes a table of subscriptions from the registry. Events no longer go to the subscribers in it; its rows stay.
Atomicity: in the caller's transaction.
Locking:   the registry of these tables, until the caller commits; only deployments call it.
*/
BEGIN
    DELETE FROM rowpost.subscription_table AS t WHERE t.table_key = p_table_key;
END
$rowpost$;
