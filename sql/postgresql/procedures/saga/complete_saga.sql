CREATE OR REPLACE FUNCTION rowpost."complete_saga:{saga_key}"(
    p_id uuid,
    p_concurrency integer -- as it was loaded
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Deletes an instance that is complete, unless another message has changed or completed it since it was loaded.
Atomicity: one DELETE in the caller's transaction.
Locking:   the instance's row.
*/
BEGIN
    DELETE FROM {saga_table} AS s
    WHERE s."Id" = p_id
      AND s."Concurrency" = p_concurrency;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP015', MESSAGE =
            'The saga cannot be stored: another message has changed or completed it. A retry loads its new state.';
    END IF;
END
$rowpost$;
