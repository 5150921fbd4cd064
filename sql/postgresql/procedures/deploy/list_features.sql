CREATE OR REPLACE FUNCTION rowpost.list_features() RETURNS TABLE (environment text, feature text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Lists the features that environments have declared here.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by environment and feature.
*/
BEGIN
    RETURN QUERY
    SELECT d.environment, d.feature
    FROM rowpost.declared_feature AS d
    ORDER BY d.environment, d.feature;
END
$rowpost$;
