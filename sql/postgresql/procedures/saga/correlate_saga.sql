CREATE OR REPLACE FUNCTION rowpost."correlate_saga:{saga_key}"(
    p_id uuid,
    p_correlation_value text DEFAULT NULL -- null: not known yet
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Stores the second correlation value of an instance while sagas move from one correlation property to another.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the instance's row; waits for a transaction that stores the same value.
*/
BEGIN
    IF length(p_correlation_value) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014', MESSAGE = 'The correlation value cannot be stored: it is longer than 200 characters. Use a shorter one.';
    END IF;

    UPDATE {saga_table} AS s
    SET "{transitional_column}" = p_correlation_value::{transitional_type}
    WHERE s."Id" = p_id;
EXCEPTION
    WHEN unique_violation THEN
        RAISE EXCEPTION USING ERRCODE = 'RP015', MESSAGE =
            'The second correlation value cannot be stored: another instance of this saga has it. Correct the state of one of them.';
END
$rowpost$;
