CREATE OR REPLACE FUNCTION rowpost."load_saga:{saga_key}"(
    p_id uuid, -- null: by correlation value
    p_correlation_value text,
    p_locked boolean, -- hold the row until the transaction ends
    p_lock_timeout_ms integer -- wait at most so long for another session that has locked it
) RETURNS TABLE (id uuid, data text, metadata text, concurrency integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Finds an instance by its id or by its correlation value, and locks it if asked to; returns nothing if there is none.
Atomicity: reads and locks in the caller's transaction.
Locking:   with p_locked the instance's row, for update: others wait here, no longer than p_lock_timeout_ms (55P03).
Order:     at most one row.
*/
DECLARE
    v_id uuid := p_id;
    v_lock_timeout CONSTANT text := current_setting('lock_timeout');
BEGIN
    IF p_id IS NULL AND p_correlation_value IS NULL OR length(p_correlation_value) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014',
            MESSAGE = 'The saga cannot be loaded: give its id, or a correlation value of at most 200 characters.';
    END IF;

    IF v_id IS NULL THEN
        SELECT s."Id" INTO v_id
        FROM {saga_table} AS s
        WHERE s."{correlation_column}" = p_correlation_value::{correlation_type};
    END IF;

    IF NOT p_locked THEN
        RETURN QUERY
        SELECT s."Id", s."Data"::text, s."Metadata", s."Concurrency"
        FROM {saga_table} AS s
        WHERE s."Id" = v_id;
        RETURN;
    END IF;

    PERFORM set_config('lock_timeout', p_lock_timeout_ms::text, true);
    RETURN QUERY
    SELECT s."Id", s."Data"::text, s."Metadata", s."Concurrency"
    FROM {saga_table} AS s
    WHERE s."Id" = v_id
    FOR UPDATE;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
END
$rowpost$;
