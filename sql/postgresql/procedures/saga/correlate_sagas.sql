CREATE OR REPLACE FUNCTION rowpost."correlate_sagas:{saga_key}"(
    p_count integer, -- instances at most, 1 to 1000
    p_after_id uuid DEFAULT NULL -- only instances with a higher id
) RETURNS TABLE (correlated integer, missing integer, last_id uuid)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores the second correlation value of instances that have none, if their states contain the value.
Reads one page of instances. The next call continues after last_id, so that no instance is read twice.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the rows that it writes; waits for a session that has locked one. Versions of states do not change.
Order:     one row: how many were written, how many of the page still have no second correlation value, and the last id of
           the page by id; null if there is no further instance.
*/
DECLARE
    v_correlated integer;
    v_above CONSTANT uuid := coalesce(p_after_id, '00000000-0000-0000-0000-000000000000'); -- no instance has this id
    v_last uuid;
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of sagas to correlate must be between 1 and 1000.';
    END IF;

    SELECT page."Id" INTO v_last
    FROM (SELECT s."Id" FROM {saga_table} AS s WHERE s."Id" > v_above ORDER BY s."Id" LIMIT p_count) AS page
    ORDER BY page."Id" DESC
    LIMIT 1;

    IF EXISTS (
        SELECT FROM {saga_table} AS s
        WHERE s."Id" > v_above
          AND s."Id" <= v_last
          AND s."{transitional_column}" IS NULL
          AND length(s."Data" ->> '{transitional_name}') > 200
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014', MESSAGE =
            'The second correlation cannot be stored: a {transitional_name} is longer than 200 characters. Correct it.';
    END IF;

    WITH wanted AS (
        SELECT s."Id"
        FROM {saga_table} AS s
        WHERE s."Id" > v_above
          AND s."Id" <= v_last
          AND s."{transitional_column}" IS NULL
          AND s."Data" ->> '{transitional_name}' <> ''
        ORDER BY s."Id"
        FOR UPDATE
    )

    UPDATE {saga_table} AS s
    SET "{transitional_column}" = (s."Data" ->> '{transitional_name}')::{transitional_type}
    FROM wanted AS w
    WHERE s."Id" = w."Id";

    GET DIAGNOSTICS v_correlated = ROW_COUNT;

    RETURN QUERY
    SELECT v_correlated, count(*)::integer, v_last
    FROM {saga_table} AS s
    WHERE s."Id" > v_above AND s."Id" <= v_last AND s."{transitional_column}" IS NULL;
EXCEPTION
    WHEN unique_violation THEN
        RAISE EXCEPTION USING ERRCODE = 'RP015', MESSAGE =
            'The second correlation cannot be stored: two instances have the same {transitional_name}. Correct the state of one of them.';
    WHEN data_exception THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014', MESSAGE =
            'The second correlation cannot be stored: a {transitional_name} is no {transitional_type}. Correct it.';
END
$rowpost$;
