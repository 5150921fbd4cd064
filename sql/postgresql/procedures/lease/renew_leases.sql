CREATE OR REPLACE FUNCTION rowpost."renew_leases:{queue_key}"(
    p_leases text, -- JSON array of objects with a token, and optionally percent (0 to 100) and text, of which 200 characters are kept
    p_seconds integer -- from now, by this server's clock, 1 to 86400
) RETURNS TABLE (token uuid)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $rowpost$
/*
Renews leases, records the progress of their handlers, and returns the tokens of those that still exist.
Atomicity: one UPDATE in the caller's transaction.
Locking:   skips rows that others lock and never waits: such a lease is ending, and its token is not returned.
Progress that is not given stays as it is.
*/
DECLARE
    v_due CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC' + p_seconds * interval '1 second';
    v_leases json;
BEGIN
    IF p_seconds IS NULL OR p_seconds NOT BETWEEN 1 AND 86400 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP003', MESSAGE =
            'The leases cannot be renewed: they must last between 1 and 86400 seconds.';
    END IF;

    BEGIN
        v_leases := p_leases::json;
    EXCEPTION
        WHEN data_exception OR statement_too_complex THEN
            v_leases := NULL; -- no JSON, or nested too deeply
    END;

    IF json_typeof(v_leases) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION USING ERRCODE = 'RP033', MESSAGE = 'The leases to renew must be a JSON array of objects with a token.';
    END IF;

    RETURN QUERY
    WITH given AS (
        SELECT DISTINCT ON (g.token) g.token, g.progress_percent, g.progress_text
        FROM (
            SELECT
                CASE WHEN j.value ->> 'token' ~ '^[[:xdigit:]]{8}(-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12}$' THEN (j.value ->> 'token')::uuid END AS token,
                CASE WHEN j.value ->> 'percent' ~ '^(100|[1-9]?[0-9])$' THEN (j.value ->> 'percent')::integer END AS progress_percent,
                left(j.value ->> 'text', 200) AS progress_text
            FROM json_array_elements(v_leases) AS j (value)
            WHERE json_typeof(j.value) = 'object'
        ) AS g
        WHERE g.token IS NOT NULL
    ),
    held AS (
        SELECT l.ctid AS place, g.progress_percent, g.progress_text
        FROM {leased_table} AS l
        JOIN given AS g ON g.token = l.token
        FOR UPDATE OF l SKIP LOCKED
    )
    UPDATE {leased_table} AS l
    SET due = v_due,
        progress_percent = coalesce(h.progress_percent, l.progress_percent),
        progress_text = coalesce(h.progress_text, l.progress_text)
    FROM held AS h
    WHERE l.ctid = h.place
    RETURNING l.token;
END
$rowpost$;
