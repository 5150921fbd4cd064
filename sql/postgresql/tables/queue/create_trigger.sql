-- The trigger that notifies supervisors of every INSERT into the queue's table, for senders that do not call send_message, such
-- as NServiceBus endpoints. Its function runs as its owner, so that a sender needs no right but INSERT on the table.
CREATE OR REPLACE FUNCTION rowpost."notify_inserts:{queue_key}"() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Notifies a waiting supervisor of an INSERT.
Atomicity: in the sender's transaction: the commit notifies, a rollback does not.
Locking:   none; if a supervisor waits for messages, the lock of NOTIFY while the transaction commits.
Order:     none.
send_message notifies too. The server sends equal notifications of a transaction once.
*/
BEGIN
    {notify_waiters}
    RETURN NULL;
END
$rowpost$;

REVOKE ALL ON FUNCTION rowpost."notify_inserts:{queue_key}"() FROM PUBLIC;

CREATE OR REPLACE TRIGGER rowpost_wake_up
AFTER INSERT ON {queue_table}
FOR EACH STATEMENT EXECUTE FUNCTION rowpost."notify_inserts:{queue_key}"();
