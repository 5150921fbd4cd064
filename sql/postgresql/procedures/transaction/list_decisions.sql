CREATE OR REPLACE FUNCTION rowpost.list_decisions() RETURNS TABLE (
    transaction_id text, participants text, queue_key text, decided_at timestamp
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists decisions that not every participant has carried out yet.
Atomicity: reads only.
Locking:   none that lasts.
Order:     the oldest first.
*/
BEGIN
    RETURN QUERY
    SELECT d.transaction_id, d.participants, d.queue_key, d.decided_at::timestamp
    FROM rowpost.decision AS d
    ORDER BY d.decided_at, d.transaction_id;
END
$rowpost$;
