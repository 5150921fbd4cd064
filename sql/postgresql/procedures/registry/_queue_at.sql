CREATE OR REPLACE FUNCTION rowpost._queue_at(p_address text) RETURNS text
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns the key of the registered queue that an address in a table of subscriptions means, or nothing.
The address is the queue's name, table@[schema] or "schema"."table".
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    -- one after the other: for an OR, the planner reads the whole registry
    RETURN coalesce(
        (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.quoted_address = p_address),
        (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.bracketed_address = p_address),
        (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = p_address)
    );
END
$rowpost$;
