CREATE OR REPLACE FUNCTION rowpost."list_sagas:{saga_key}"(
    p_count integer, -- 1 to 1000
    p_after_id uuid DEFAULT NULL -- only instances with a higher id
) RETURNS TABLE (
    id uuid, correlation_value text, concurrency integer, saga_type_version text, data text, metadata text
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $rowpost$
/*
Reads the instances of a saga, one page at a time.
Atomicity: reads only.
Locking:   none.
Order:     by id.
*/
BEGIN
    IF p_count IS NULL OR p_count NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE = 'The number of sagas to list must be between 1 and 1000.';
    END IF;

    RETURN QUERY
    SELECT
        s."Id", s."{correlation_column}"::text, s."Concurrency", s."SagaTypeVersion"::text, s."Data"::text, s."Metadata"
    FROM {saga_table} AS s
    WHERE p_after_id IS NULL OR s."Id" > p_after_id
    ORDER BY s."Id"
    LIMIT p_count;
END
$rowpost$;
