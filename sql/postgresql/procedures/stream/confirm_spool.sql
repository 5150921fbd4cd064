CREATE OR REPLACE FUNCTION rowpost."confirm_spool:{queue_key}"(
    p_owner text -- names the stream: its checkpoint's own mark
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Says that a batch of the spool stands in its stream's log: from now on the spool waits for this stream and no other.
Atomicity: in the caller's transaction.
Locking:   the spool's row, the first time.
*/
BEGIN
    IF NOT EXISTS (SELECT FROM rowpost.spool AS s WHERE s.queue_key = '{queue_key}' AND s.owned_by = p_owner) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP030', MESSAGE =
            'Another stream has taken over the spool of this queue: the messages of this one''s last batch are there.',
            HINT = 'Let that stream go on; this one needs a new checkpoint, and a place of its own to write to.';
    END IF;

    UPDATE rowpost.spool AS s
    SET confirmed = true
    WHERE s.queue_key = '{queue_key}' AND s.owned_by = p_owner AND NOT s.confirmed;
END
$rowpost$;
