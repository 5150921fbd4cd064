-- What operators and readers may execute on this queue, rendered from the roles in contract.yml. The logins of endpoints
-- are granted one by one: rowpost queue grant.
{procedure_grants}
DO $rowpost$
DECLARE
    v_role text;
BEGIN
    IF to_regproc('rowpost."read_range:{queue_key}"') IS NOT NULL THEN
        -- read_range runs as its caller, so that the server plans it as a part of the query that calls it. Its caller
        -- needs these columns, and gets no other column and no other right on the table.
        GRANT SELECT (id, expires, headers, body, seq) ON {queue_table} TO rowpost_operator, rowpost_body_reader;
    ELSIF to_regproc('rowpost."receive_messages:{queue_key}"') IS NOT NULL THEN
        REVOKE SELECT (id, expires, headers, body, seq) ON {queue_table} FROM rowpost_operator, rowpost_body_reader;
    END IF;
    IF to_regproc('rowpost."maintain_queue:{queue_key}"') IS NOT NULL THEN
        -- to run the VACUUM and REINDEX that maintain_queue returns; before PostgreSQL 17 only the table's owner may
        IF current_setting('server_version_num')::integer >= 170000 THEN
            EXECUTE format('GRANT MAINTAIN ON %s TO rowpost_operator', '{queue_table}'::regclass);
        END IF;
    END IF;
    IF to_regproc('rowpost."receive_messages:{queue_key}"') IS NOT NULL THEN
        -- The name of the table is resolved with the caller's rights, and only PUBLIC's own schema is open to everybody.
        FOREACH v_role IN ARRAY ARRAY['rowpost_operator', 'rowpost_body_reader'] LOOP
            IF NOT has_schema_privilege(v_role, '{schema_name}', 'USAGE') THEN
                EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', '{schema_name}', v_role);
            END IF;
        END LOOP;
    END IF;
END
$rowpost$;
