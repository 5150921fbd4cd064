CREATE OR REPLACE FUNCTION rowpost.record_version(
    p_schema_version integer, -- number of the newest one-time script
    p_tool_version text
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records which release deployed which schema; refuses an older schema than the deployed one.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.version.
*/
DECLARE
    v_newest CONSTANT integer := (SELECT max(v.schema_version) FROM rowpost.version AS v);
BEGIN
    IF length(p_tool_version) > 50 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The version cannot be recorded: it may have at most 50 characters.';
    END IF;

    IF v_newest > p_schema_version THEN
        RAISE EXCEPTION USING ERRCODE = 'RP008', MESSAGE = format(
            'The version cannot be recorded: the database has schema %s, and this rowpost has schema %s. Use a newer rowpost.',
            v_newest, p_schema_version);
    END IF;

    DELETE FROM rowpost.version AS v WHERE v.schema_version = p_schema_version AND v.tool_version = p_tool_version;

    INSERT INTO rowpost.version (schema_version, tool_version, applied_at, applied_by)
    VALUES (p_schema_version, p_tool_version, clock_timestamp() AT TIME ZONE 'UTC', session_user);
END
$rowpost$;
