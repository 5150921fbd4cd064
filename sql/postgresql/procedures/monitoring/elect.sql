CREATE OR REPLACE FUNCTION rowpost.elect(
    p_duty text -- what only one session at a time does, for example maintenance
) RETURNS TABLE (elected boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Elects the first session that asks for a duty; it stays elected until it ends.
Atomicity: needs no transaction and changes none: the lock belongs to the session.
Locking:   one advisory lock a duty; nobody waits for it.
*/
BEGIN
    IF length(p_duty) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'Nobody can be elected: the name of a duty may have at most 200 characters.';
    END IF;

    RETURN QUERY SELECT pg_try_advisory_lock(hashtextextended(concat('rowpost duty ', p_duty), 0));
END
$rowpost$;
