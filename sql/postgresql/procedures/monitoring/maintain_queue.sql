CREATE OR REPLACE FUNCTION rowpost."maintain_queue:{queue_key}"(
    p_offline boolean DEFAULT NULL -- true: also steps that block senders and receivers while they run
) RETURNS TABLE (action text, reason text, statement text, state text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $rowpost$
/*
Maintains the queue's table, and returns what was done and what is left to do.
Atomicity: changes settings in the caller's transaction. VACUUM and REINDEX CONCURRENTLY cannot run in a function: the
           caller runs the returned statements, one by one, outside of a transaction.
Locking:   SHARE UPDATE EXCLUSIVE for settings and for the returned statements: no sender or receiver waits. Truncating
           takes an exclusive lock if nobody has locked the table, and releases it as soon as somebody waits. VACUUM FULL
           blocks senders and receivers, and is returned only with p_offline.
Rights:    changes settings as the owner. The statements need the table's owner or, from PostgreSQL 17 on, MAINTAIN, which
           operators have; DROP INDEX needs the owner. A caller without the right gets them with the state waits.
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

    -- An index that an interrupted REINDEX CONCURRENTLY left is invalid, and every send still maintains it.
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
                format('Session %s has a transaction open since %s: dead rows that are newer than it cannot be removed.', v_holder.pid, v_holder.xact_start),
                format('SELECT pg_terminate_backend(%s);', v_holder.pid), 'waits';
        END IF;
    END IF;

    -- VACUUM truncates only the end of the file, and only if it is empty at that moment: a busy queue needs a second round.
    -- Without INDEX_CLEANUP, pointers to a few dead rows may stay, and a page with a pointer is not truncated.
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
