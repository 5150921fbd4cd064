CREATE OR REPLACE FUNCTION rowpost.record_script(
    p_script_name text, -- path below sql/, with :<queue key> where rendered
    p_script_kind text, -- once, anytime or everytime
    p_script_hash text, -- SHA-256 of the rendered text
    p_object_kind text DEFAULT NULL, -- schema, table, procedure or trigger
    p_object_name text DEFAULT NULL -- quoted, with its schema; the function of a trigger
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records in the journal that a script ran, with the fingerprint of the object that it made.
Atomicity: in the caller's transaction: journal and change commit together.
Locking:   one row of the journal.
*/
BEGIN
    IF length(p_script_name) > 400 OR length(p_script_hash) > 64 OR length(p_object_name) > 520 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE =
            'The script cannot be recorded: its name may have at most 400 characters, its hash 64 and the name of its object 520.';
    END IF;

    IF p_script_kind = 'once' AND EXISTS (
        SELECT FROM rowpost.journal AS j WHERE j.script_name = p_script_name AND j.script_hash <> p_script_hash
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP007', MESSAGE = format(
            'The one-time script %s was edited after it ran here. Restore it, and put the change into a new script.',
            p_script_name);
    END IF;

    DELETE FROM rowpost.journal AS j WHERE j.script_name = p_script_name;

    INSERT INTO rowpost.journal
        (script_name, script_kind, script_hash, object_kind, object_name, object_fingerprint, applied_at, applied_by)
    VALUES (
        p_script_name, p_script_kind, p_script_hash, p_object_kind, p_object_name,
        rowpost._object_fingerprint(p_object_kind, p_object_name), clock_timestamp() AT TIME ZONE 'UTC', session_user
    );
END
$rowpost$;
