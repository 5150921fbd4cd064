CREATE OR REPLACE FUNCTION rowpost.unregister_queue(p_queue_name text) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Removes a queue from the registry, with its failure counts, its ownership, and what operators set for it.
Atomicity: in the caller's transaction.
Locking:   the registry, until the caller commits; only deployments call it.
*/
DECLARE
    v_queue_key CONSTANT text := rowpost._resolve_queue(p_queue_name);
BEGIN
    DELETE FROM rowpost.failure AS f WHERE f.queue_key = v_queue_key;

    DELETE FROM rowpost.queue_ownership AS l WHERE l.queue_key = v_queue_key;

    DELETE FROM rowpost.queue_control AS c WHERE c.queue_key = v_queue_key;

    DELETE FROM rowpost.supervised_queue AS s WHERE s.queue_key = v_queue_key;

    DELETE FROM rowpost.queue AS q WHERE q.queue_key = v_queue_key;
END
$rowpost$;
