CREATE OR REPLACE FUNCTION rowpost."update_saga:{saga_key}"(
    p_id uuid,
    p_concurrency integer, -- as it was loaded
    p_data text, -- the state as JSON
    p_persistence_version text,
    p_saga_type_version text
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Stores an instance's new state, unless another message has changed or completed it since it was loaded.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the instance's row.
*/
BEGIN
    IF length(p_persistence_version) > 23 OR length(p_saga_type_version) > 23 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The saga cannot be stored: its two versions may have at most 23 characters each.';
    END IF;

    UPDATE {saga_table} AS s
    SET "Data" = p_data::jsonb,
        "PersistenceVersion" = p_persistence_version,
        "SagaTypeVersion" = p_saga_type_version,
        "Concurrency" = p_concurrency + 1
    WHERE s."Id" = p_id
      AND s."Concurrency" = p_concurrency;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP015', MESSAGE =
            'The saga cannot be stored: another message has changed or completed it. A retry loads its new state.';
    END IF;
END
$rowpost$;
