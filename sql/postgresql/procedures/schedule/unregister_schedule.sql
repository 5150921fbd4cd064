CREATE OR REPLACE FUNCTION rowpost.unregister_schedule(p_schedule_name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Removes a schedule. Messages that it has sent stay.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.schedule; waits for a supervisor that sends its message.
*/
BEGIN
    DELETE FROM rowpost.schedule AS s WHERE s.schedule_name = p_schedule_name;
END
$rowpost$;
