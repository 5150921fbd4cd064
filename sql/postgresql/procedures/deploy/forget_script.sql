CREATE OR REPLACE FUNCTION rowpost.forget_script(p_script_name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Removes a script from the journal after its object was dropped on purpose.
Atomicity: in the caller's transaction.
Locking:   one row of the journal.
*/
BEGIN
    DELETE FROM rowpost.journal AS j WHERE j.script_name = p_script_name;
END
$rowpost$;
