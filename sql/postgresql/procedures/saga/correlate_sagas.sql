CREATE OR REPLACE FUNCTION rowpost."correlate_sagas:{saga_key}"(
    p_count integer -- instances at most, 1 to 1000
) RETURNS TABLE (correlated integer, missing integer)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Writes the second correlation of instances that have none, as far as their states hold the value, while sagas move.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the rows that it writes; waits for whoever holds one. Versions of states stay as they are.
Order:     one row: how many were written, and how many instances have no second correlation after that.
*/
DECLARE
    v_correlated integer;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of sagas to correlate must be between 1 and 1000.';
    END IF;

    IF EXISTS (
        SELECT FROM {saga_table} AS s
        WHERE s."{transitional_column}" IS NULL AND length(s."Data" ->> '{transitional_name}') > 200
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014', MESSAGE = 'The state of an instance has a {transitional_name} of more than 200 characters.';
    END IF;

    WITH wanted AS (
        SELECT s."Id"
        FROM {saga_table} AS s
        WHERE s."{transitional_column}" IS NULL AND s."Data" ->> '{transitional_name}' <> ''
        ORDER BY s."Id"
        LIMIT p_count
        FOR UPDATE
    )

    UPDATE {saga_table} AS s
    SET "{transitional_column}" = (s."Data" ->> '{transitional_name}')::{transitional_type}
    FROM wanted AS w
    WHERE s."Id" = w."Id";

    GET DIAGNOSTICS v_correlated = ROW_COUNT;

    RETURN QUERY
    SELECT v_correlated, count(*)::integer
    FROM {saga_table} AS s
    WHERE s."{transitional_column}" IS NULL;
EXCEPTION
    WHEN unique_violation THEN
        RAISE EXCEPTION USING ERRCODE = 'RP015', MESSAGE = 'The states of two instances have the same {transitional_name}.';
    WHEN data_exception THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014', MESSAGE = 'The state of an instance has a {transitional_name} that is no {transitional_type}.';
END
$rowpost$;
