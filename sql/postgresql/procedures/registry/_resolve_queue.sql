CREATE OR REPLACE FUNCTION rowpost._resolve_queue(p_queue_name text) RETURNS text
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Finds the key of a registered queue; raises an error if the queue is not registered.
Atomicity: reads only.
Locking:   none that lasts.
*/
DECLARE
    v_queue_key text;
BEGIN
    SELECT q.queue_key INTO v_queue_key
    FROM rowpost.queue AS q
    WHERE q.queue_name = p_queue_name;

    IF v_queue_key IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'RP001', MESSAGE = format(
            'No queue named ''%s'' is registered in this database.%s rowpost queue list shows those that are; rowpost queue create makes one.',
            p_queue_name,
            (
                SELECT format(' There is a queue ''%s'', whose name differs in upper and lower case or in how an accent is composed.', min(q.queue_name))
                FROM rowpost.queue AS q
                WHERE lower(normalize(q.queue_name)) = lower(normalize(p_queue_name))
                HAVING count(*) > 0
            ));
    END IF;

    RETURN v_queue_key;
END
$rowpost$;
