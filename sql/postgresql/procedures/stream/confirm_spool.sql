CREATE OR REPLACE FUNCTION rowpost."confirm_spool:{queue_key}"(
    p_owner text -- names the stream: the unique id in its checkpoint
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records that the stream has logged a batch of the spool; from then on only this stream may continue with the spool.
Atomicity: in the caller's transaction.
Locking:   the spool's row, the first time.
*/
BEGIN
    IF NOT EXISTS (SELECT FROM rowpost.spool AS s WHERE s.queue_key = '{queue_key}' AND s.owned_by = p_owner) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP030', MESSAGE =
            'Another stream has taken over the spool of this queue: it contains the messages of the last batch of this stream.',
            HINT = 'Let that stream continue. Give this one a new checkpoint and a new target.';
    END IF;

    UPDATE rowpost.spool AS s
    SET confirmed = true
    WHERE s.queue_key = '{queue_key}' AND s.owned_by = p_owner AND NOT s.confirmed;
END
$rowpost$;
