CREATE OR REPLACE FUNCTION rowpost.record_feature(
    p_environment text,
    p_feature text -- a feature of the contract, or delayed:<queue key>
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records that an environment declares a feature; nothing changes if it is recorded.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.declared_feature.
*/
BEGIN
    IF length(p_environment) > 200 OR length(p_feature) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE =
            'The feature cannot be recorded: its name and that of the environment may have at most 200 characters each.';
    END IF;

    INSERT INTO rowpost.declared_feature (environment, feature) VALUES (p_environment, p_feature) ON CONFLICT DO NOTHING;
END
$rowpost$;
