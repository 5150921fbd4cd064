-- A schema of queues, sagas or subscriptions. One that is there already stays as it is.
DO $rowpost$
BEGIN
    IF to_regnamespace(quote_ident('{schema_name}')) IS NULL THEN
        IF NOT has_database_privilege(current_database(), 'CREATE') THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = format('The schema %s does not exist and you may not create schemas.', '{schema_name}'),
                HINT = format('Let an administrator run: CREATE SCHEMA %I AUTHORIZATION %I; or name a schema that exists',
                    '{schema_name}', current_user);
        END IF;

        EXECUTE format('CREATE SCHEMA %I', '{schema_name}');
    END IF;
END
$rowpost$;
