CREATE OR REPLACE FUNCTION rowpost._queue_at(p_address text) RETURNS text
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns the key of the registered queue that an address means, as tables of subscriptions spell it: the queue's name, table@[schema]
or "schema"."table"; null if no queue is registered there.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    RETURN (
        SELECT q.queue_key
        FROM rowpost.queue AS q
        WHERE q.quoted_address = p_address OR q.bracketed_address = p_address OR q.queue_name = p_address
    );
END
$rowpost$;
