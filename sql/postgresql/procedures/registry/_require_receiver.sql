CREATE OR REPLACE FUNCTION rowpost._require_receiver(
    p_queue_key text, -- null: a queue that is not registered, for which only operators act
    p_subject text -- the queue or endpoint that the caller acts for, for the error's text
) RETURNS void
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Raises an error if the caller may neither receive from a queue nor operate queues, so that no login acts for another's queue.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    IF NOT rowpost._may_receive(p_queue_key) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP024', MESSAGE = format(
            'The login %s may not act for %L: it may not receive from that queue and is no operator.'
            ' rowpost queue grant prints the statement that grants the right.',
            session_user, p_subject);
    END IF;
END
$rowpost$;
