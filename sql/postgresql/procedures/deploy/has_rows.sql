CREATE OR REPLACE FUNCTION rowpost.has_rows(p_script_name text) RETURNS TABLE (has_rows boolean)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns whether the table that a script of the journal made has rows, and exists.
Atomicity: reads only.
Locking:   none that lasts.
Rights:    runs as the owner. The journal names the tables that it may read.
*/
DECLARE
    v_table CONSTANT regclass := (
        SELECT to_regclass(j.object_name)
        FROM rowpost.journal AS j
        WHERE j.script_name = p_script_name AND j.object_kind = 'table'
    );
BEGIN
    has_rows := false;

    IF v_table IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', v_table) INTO has_rows;
    END IF;

    RETURN NEXT;
END
$rowpost$;
