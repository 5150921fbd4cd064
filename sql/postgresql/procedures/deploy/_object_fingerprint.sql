CREATE OR REPLACE FUNCTION rowpost._object_fingerprint(
    p_object_kind text, -- schema, table, procedure or trigger
    p_object_name text -- quoted, with its schema; the function of a trigger
) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Returns the fingerprint of an object: the SHA-256 of a procedure's definition, or a table's columns, one a line.
A trigger's is its function's, with the tables that have the trigger, its events, and whether it is enabled. A schema has only a name.
Null if the object does not exist.
*/
DECLARE
    v_triggers text;
BEGIN
    IF p_object_kind = 'trigger' THEN
        SELECT string_agg(concat_ws(' ', t.tgrelid::regclass, t.tgtype, t.tgenabled), E'\n' ORDER BY t.tgrelid, t.oid) INTO v_triggers
        FROM pg_trigger AS t
        WHERE t.tgfoid = to_regproc(p_object_name);

        RETURN encode(sha256(convert_to(v_triggers || rowpost._object_fingerprint('procedure', p_object_name), 'UTF8')), 'hex');
    END IF;

    IF p_object_kind = 'procedure' THEN
        RETURN (
            SELECT encode(sha256(convert_to(concat_ws(E'\n',
                pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname,
                p.prosecdef, p.provolatile, p.proconfig, p.prosrc), 'UTF8')), 'hex')
            FROM pg_proc AS p
            JOIN pg_language AS l ON l.oid = p.prolang
            WHERE p.oid = to_regproc(p_object_name)
        );
    END IF;

    IF p_object_kind = 'schema' THEN
        RETURN CASE WHEN to_regnamespace(p_object_name) IS NOT NULL THEN 'schema' END;
    END IF;

    RETURN (
        SELECT string_agg(
            concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
                CASE WHEN a.attnotnull THEN 'not null' ELSE 'null' END,
                CASE WHEN a.attidentity <> '' THEN 'identity' END,
                CASE WHEN a.attgenerated <> '' THEN 'generated' END),
            E'\n' ORDER BY a.attnum)
        FROM pg_attribute AS a
        WHERE p_object_kind = 'table'
          AND a.attrelid = to_regclass(p_object_name) AND a.attnum > 0 AND NOT a.attisdropped
    );
END
$rowpost$;
