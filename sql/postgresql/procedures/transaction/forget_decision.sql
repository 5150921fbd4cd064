CREATE OR REPLACE FUNCTION rowpost.forget_decision(p_transaction_id text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Deletes a decision after every participant has carried it out.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.decision.
A decision of a queue from which the caller may not receive stays.
*/
BEGIN
    DELETE FROM rowpost.decision AS d WHERE d.transaction_id = p_transaction_id AND rowpost._may_receive(d.queue_key);
END
$rowpost$;
