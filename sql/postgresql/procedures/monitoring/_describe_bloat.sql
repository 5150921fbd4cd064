CREATE OR REPLACE FUNCTION rowpost._describe_bloat(
    p_table regclass
) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Describes the bloat of a table that uses much more space than its rows need; returns nothing if it is not bloated.
Reads the catalog and the statistics: it scans no table.
*/
DECLARE
    v_toast CONSTANT oid := (SELECT nullif(c.reltoastrelid, 0) FROM pg_class AS c WHERE c.oid = p_table);
    v_live CONSTANT bigint := pg_stat_get_live_tuples(p_table);
    -- A row is its columns as last analyzed, tuple header and line pointer. A chunk of a long body is 2 KB.
    v_needed CONSTANT bigint := v_live * (28 + coalesce((
        SELECT sum(s.avg_width)
        FROM pg_class AS c
        JOIN pg_stats AS s ON s.schemaname = c.relnamespace::regnamespace::name AND s.tablename = c.relname
        WHERE c.oid = p_table), 1000));
    v_toast_needed CONSTANT bigint := coalesce(pg_stat_get_live_tuples(v_toast), 0) * 2048;
    v_bytes CONSTANT bigint := pg_relation_size(p_table);
    v_toast_bytes CONSTANT bigint := coalesce(pg_relation_size(v_toast), 0);
BEGIN
    RETURN CASE
        WHEN (v_bytes > 16777216 AND v_bytes > 4 * v_needed) OR (v_toast_bytes > 16777216 AND v_toast_bytes > 4 * v_toast_needed)
            THEN format('%s for %s messages.', pg_size_pretty(v_bytes + v_toast_bytes), v_live)
    END;
END
$rowpost$;
