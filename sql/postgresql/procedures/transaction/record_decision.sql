CREATE OR REPLACE FUNCTION rowpost.record_decision(
    p_queue_key text, -- of the queue whose message is handled
    p_transaction_id text,
    p_participants text -- JSON array: names of the databases that are prepared
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records the decision to commit, valid when the caller's transaction commits; called before the first PREPARE.
Atomicity: in the caller's transaction.
Locking:   the new row, and an advisory lock that shows probe_transaction that the transaction still runs.
The caller must be allowed to receive from the message's queue, so that nobody decides for another's transaction.
*/
BEGIN
    IF length(p_queue_key) > 128 OR length(p_transaction_id) > 64 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE =
            'The decision cannot be recorded: a queue key has at most 128 characters, the id of a transaction 64.';
    END IF;

    PERFORM rowpost._require_receiver(p_queue_key, p_queue_key);

    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_transaction_id, 1919907696)); -- "rowp"
    EXCEPTION
        WHEN lock_not_available OR deadlock_detected THEN
            RAISE EXCEPTION USING ERRCODE = 'RP012',
                MESSAGE =
                    'The decision cannot be recorded: another transaction has the same id, or the wait for its lock ended in a deadlock.';
    END;

    INSERT INTO rowpost.decision (transaction_id, participants, queue_key, decided_at)
    VALUES (p_transaction_id, p_participants, p_queue_key, clock_timestamp() AT TIME ZONE 'UTC');
END
$rowpost$;
