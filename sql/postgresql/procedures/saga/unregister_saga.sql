CREATE OR REPLACE FUNCTION rowpost.unregister_saga(p_saga_key text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Removes a type of saga from the registry; its table stays.
Atomicity: one DELETE in the caller's transaction.
Locking:   the registry of sagas, until the caller commits; only deployments call it.
*/
BEGIN
    DELETE FROM rowpost.saga AS s WHERE s.saga_key = p_saga_key;
END
$rowpost$;
