CREATE OR REPLACE FUNCTION rowpost."reschedule_delayed:{queue_key}"(
    p_delayed_key text, -- as browse_delayed returns it
    p_delay_ms bigint -- milliseconds until the message is due, by this server's clock; negative: due now
) RETURNS TABLE (rescheduled boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lets a delayed message be due at another time, and returns whether it was there.
Atomicity: one UPDATE in the caller's transaction.
Locking:   one row; a row that a mover has locked is not changed.
*/
DECLARE
    v_id CONSTANT uuid := CASE WHEN p_delayed_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN p_delayed_key::uuid END;
BEGIN
    IF p_delay_ms IS NULL OR p_delay_ms NOT BETWEEN -3155760000000 AND 3155760000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP010', MESSAGE = 'The delay must be given, and be at most 100 years.';
    END IF;

    UPDATE {delayed_table} AS d
    SET due = clock_timestamp() + p_delay_ms * interval '1 millisecond'
    WHERE d.id IN (SELECT c.id FROM {delayed_table} AS c WHERE c.id = v_id FOR UPDATE SKIP LOCKED);

    RETURN QUERY SELECT FOUND;
END
$rowpost$;
