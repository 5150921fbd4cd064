CREATE OR REPLACE FUNCTION rowpost."maintain_queue:{queue_key}"(
    p_offline boolean DEFAULT NULL -- true: also what keeps everybody out while it runs
) RETURNS TABLE (action text, reason text, statement text, state text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $rowpost$
/*
Keeps the queue's table healthy, and says what was done, and what the caller has to run, or a person.
Atomicity: the settings in the caller's transaction; VACUUM and REINDEX CONCURRENTLY run in no function, so that the
           caller runs their statements, one by one, outside of a transaction.
Locking:   SHARE UPDATE EXCLUSIVE for settings, and for what it proposes: no sender or receiver waits. Truncating takes
           an exclusive lock when nobody holds one and gives it back as soon as somebody waits. VACUUM FULL locks
           everybody out: only with p_offline.
Rights:    settings as the owner. The statements want the table's owner, or from PostgreSQL 17 on MAINTAIN, which operators
           have; DROP INDEX wants the owner. Whoever may not gets them as waits, for the owner to run.
*/
DECLARE
    v_table CONSTANT regclass := '{queue_table}'::regclass;
    v_toast CONSTANT oid := (SELECT nullif(c.reltoastrelid, 0) FROM pg_class AS c WHERE c.oid = v_table);
    v_live CONSTANT bigint := pg_stat_get_live_tuples(v_table);
    v_dead CONSTANT bigint := pg_stat_get_dead_tuples(v_table) + coalesce(pg_stat_get_dead_tuples(v_toast), 0);
    v_bloat CONSTANT text := rowpost._describe_bloat(v_table);
    v_owner CONSTANT boolean := (
        SELECT pg_has_role(session_user, c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = v_table
    );
    v_state text := 'waits';
    v_holder record;
    v_index record;
BEGIN
    IF v_owner THEN
        v_state := 'todo';
    ELSIF current_setting('server_version_num')::integer >= 170000 THEN
        v_state := CASE WHEN has_table_privilege(session_user, v_table, 'MAINTAIN') THEN 'todo' ELSE 'waits' END;
    END IF;

    IF NOT (SELECT coalesce(c.reloptions, '{}') @> ARRAY[
        'autovacuum_vacuum_scale_factor=0', 'autovacuum_vacuum_threshold=2000', 'autovacuum_vacuum_cost_delay=0',
        'autovacuum_analyze_scale_factor=0', 'autovacuum_analyze_threshold=2000', 'vacuum_truncate=off'
    ] FROM pg_class AS c WHERE c.oid = v_table) THEN
        ALTER TABLE {queue_table} SET (
            autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
            autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, vacuum_truncate = off
        );
        RETURN QUERY SELECT 'settings', 'Autovacuum goes by the number of dead rows, at full speed, and never truncates.',
            format('ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);', v_table),
            'done';
    END IF;

    -- What REINDEX CONCURRENTLY left behind when it was interrupted costs every send its upkeep.
    FOR v_index IN
        SELECT i.indexrelid::regclass AS name
        FROM pg_index AS i
        JOIN pg_class AS c ON c.oid = i.indexrelid
        WHERE i.indrelid = v_table AND NOT i.indisvalid AND c.relname ~ '_cc(new|old)\d*$'
    LOOP
        RETURN QUERY SELECT 'drop_index', 'An interrupted REINDEX left it behind.',
            format('DROP INDEX CONCURRENTLY %s;', v_index.name), CASE WHEN v_owner THEN 'todo' ELSE 'waits' END;
    END LOOP;

    IF v_dead >= 10000 THEN
        SELECT a.pid, a.xact_start INTO v_holder
        FROM pg_stat_activity AS a
        WHERE a.backend_xmin IS NOT NULL AND a.xact_start < clock_timestamp() - interval '5 minutes'
        ORDER BY age(a.backend_xmin) DESC
        LIMIT 1;
        IF FOUND THEN
            RETURN QUERY SELECT 'end_transaction',
                format('Session %s has a transaction open since %s: no dead row younger than it can go.', v_holder.pid, v_holder.xact_start),
                format('SELECT pg_terminate_backend(%s);', v_holder.pid), 'waits';
        END IF;
    END IF;

    -- The file is cut at its end only, and only when that is empty at this moment: a busy queue needs a second round.
    -- Without INDEX_CLEANUP pointers to a few dead rows may stay, and a page with any is not cut off.
    IF v_bloat IS NOT NULL AND p_offline THEN
        RETURN QUERY SELECT 'rewrite', v_bloat, format('VACUUM (FULL, ANALYZE) %s;', v_table), v_state;
    ELSIF v_dead >= 10000 OR v_bloat IS NOT NULL THEN
        RETURN QUERY SELECT 'vacuum',
            concat_ws(' ', v_bloat, format('%s dead rows.', v_dead)),
            format('VACUUM (ANALYZE, %s) %s;', CASE WHEN v_bloat IS NOT NULL THEN 'INDEX_CLEANUP on, TRUNCATE on' ELSE 'TRUNCATE off' END, v_table),
            v_state;
    END IF;

    FOR v_index IN
        SELECT i.indexrelid::regclass AS name, pg_relation_size(i.indexrelid) AS bytes
        FROM pg_index AS i
        WHERE i.indrelid = v_table AND i.indisvalid
          AND pg_relation_size(i.indexrelid) > 8388608 AND pg_relation_size(i.indexrelid) > 4 * v_live * 48
    LOOP
        RETURN QUERY SELECT 'reindex', format('%s index %s messages.', pg_size_pretty(v_index.bytes), v_live),
            format('REINDEX INDEX CONCURRENTLY %s;', v_index.name), v_state;
    END LOOP;
END
$rowpost$;
