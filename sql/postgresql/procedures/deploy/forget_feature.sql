CREATE OR REPLACE FUNCTION rowpost.forget_feature(p_environment text, p_feature text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Deletes the record that an environment declares a feature.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.declared_feature.
*/
BEGIN
    DELETE FROM rowpost.declared_feature AS d WHERE d.environment = p_environment AND d.feature = p_feature;
END
$rowpost$;
