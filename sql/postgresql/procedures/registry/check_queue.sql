CREATE OR REPLACE FUNCTION rowpost.check_queue(
    p_queue_name text DEFAULT NULL -- null checks every queue
) RETURNS TABLE (queue_name text, finding text, detail text, remedy text)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Compares queue tables with what a queue needs, and returns what is missing and the command that repairs it.
Atomicity: reads only the catalog.
Locking:   none that lasts.
Order:     by queue.
*/
DECLARE
    v_queue_key CONSTANT text := CASE WHEN p_queue_name IS NOT NULL THEN rowpost._resolve_queue(p_queue_name) END;
BEGIN
    RETURN QUERY
    WITH queues AS (
        SELECT
            q.queue_name,
            q.queue_key,
            q.kind,
            q.delayed,
            format('%I.%I', q.schema_name, q.table_name) AS table_name,
            to_regclass(format('%I.%I', q.schema_name, q.table_name)) AS table_id
        FROM rowpost.queue AS q
        WHERE v_queue_key IS NULL OR q.queue_key = v_queue_key
    ),
    needed (column_name, type_name) AS (
        VALUES ('id', 'uuid'), ('expires', 'timestamp'), ('headers', 'text'), ('body', 'bytea'), ('seq', 'bigint')
    ),
    present AS (
        SELECT a.attrelid, a.attname::text AS column_name, format_type(a.atttypid, a.atttypmod) AS type_name
        FROM pg_attribute AS a
        WHERE a.attnum > 0 AND NOT a.attisdropped
    ),
    leading_keys AS (
        SELECT i.indrelid, a.attname::text AS column_name
        FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indisvalid
    ),
    dead AS (
        SELECT
            q.queue_name,
            pg_stat_get_dead_tuples(q.table_id) + coalesce(pg_stat_get_dead_tuples(nullif(c.reltoastrelid, 0)), 0) AS dead_rows
        FROM queues AS q
        JOIN pg_class AS c ON c.oid = q.table_id
        WHERE q.kind <> 'external'
    ),
    findings AS (
        SELECT
            q.queue_name,
            'table_missing' AS finding,
            format('The table %s does not exist.', q.table_name) AS detail,
            CASE WHEN q.kind = 'external' THEN 'rowpost queue drop, or let its owner make the table' ELSE 'rowpost apply' END AS remedy
        FROM queues AS q
        WHERE q.table_id IS NULL
        UNION ALL
        SELECT
            q.queue_name,
            'column_missing',
            format('The column %s is missing.', n.column_name),
            format('ALTER TABLE %s ADD COLUMN %s %s;', q.table_name, n.column_name, n.type_name)
        FROM queues AS q
        CROSS JOIN needed AS n
        WHERE q.table_id IS NOT NULL
          AND NOT EXISTS (SELECT FROM present AS c WHERE c.attrelid = q.table_id AND c.column_name = n.column_name)
        UNION ALL
        SELECT
            q.queue_name,
            'column_mandatory',
            format('The column %I allows no null and has no default: messages cannot be stored.', a.attname),
            format('ALTER TABLE %s ALTER COLUMN %I DROP NOT NULL;', q.table_name, a.attname)
        FROM queues AS q
        JOIN pg_attribute AS a ON a.attrelid = q.table_id AND a.attnum > 0 AND NOT a.attisdropped
        WHERE a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
          AND a.attname NOT IN ('id', 'expires', 'headers', 'body', 'seq')
        UNION ALL
        SELECT
            q.queue_name,
            'column_shrunk',
            format('The column %s is %s: messages may not fit.', c.column_name, c.type_name),
            format('ALTER TABLE %s ALTER COLUMN %s TYPE %s;', q.table_name, c.column_name, n.type_name)
        FROM queues AS q
        JOIN present AS c ON c.attrelid = q.table_id
        JOIN needed AS n ON n.column_name = c.column_name
        WHERE c.column_name IN ('headers', 'body') AND c.type_name <> n.type_name AND c.type_name <> 'character varying'
        UNION ALL
        SELECT
            q.queue_name,
            'expires_index_missing',
            'No index starts with expires: purging expired messages reads the whole queue.',
            format('CREATE INDEX ON %s (expires) WHERE expires IS NOT NULL;', q.table_name)
        FROM queues AS q
        WHERE q.table_id IS NOT NULL
          AND q.kind <> 'external'
          AND NOT EXISTS (SELECT FROM leading_keys AS k WHERE k.indrelid = q.table_id AND k.column_name = 'expires')
        UNION ALL
        SELECT
            q.queue_name,
            'row_version_index_missing',
            'No index starts with seq: every receive reads the whole queue.',
            format('CREATE UNIQUE INDEX ON %s (seq);', q.table_name)
        FROM queues AS q
        WHERE q.table_id IS NOT NULL
          AND q.kind <> 'external'
          AND NOT EXISTS (SELECT FROM leading_keys AS k WHERE k.indrelid = q.table_id AND k.column_name = 'seq')
        UNION ALL
        SELECT
            q.queue_name,
            'row_version_32_bit',
            'seq has 32 bits: the queue stops after 2,147,483,647 messages.',
            format('ALTER TABLE %s ALTER COLUMN seq TYPE bigint; ALTER SEQUENCE %s AS bigint;',
                   q.table_name, pg_get_serial_sequence(q.table_name, 'seq'))
        FROM queues AS q
        JOIN present AS c ON c.attrelid = q.table_id AND c.column_name = 'seq' AND c.type_name = 'integer'
        UNION ALL
        SELECT
            q.queue_name,
            'owner_differs',
            format('%s owns the table, and %s, the owner of the schema rowpost, has no rights on it: its procedures are refused.',
                   c.relowner::regrole, n.nspowner::regrole),
            format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s;', q.table_name, n.nspowner::regrole)
        FROM queues AS q
        JOIN pg_class AS c ON c.oid = q.table_id
        JOIN pg_namespace AS n ON n.nspname = 'rowpost'
        WHERE NOT has_table_privilege(n.nspowner, q.table_id, 'INSERT')
           OR (q.kind <> 'external' AND NOT (has_table_privilege(n.nspowner, q.table_id, 'SELECT') AND has_table_privilege(n.nspowner, q.table_id, 'DELETE')))
        UNION ALL
        SELECT
            q.queue_name,
            'orphaned',
            format('The process that owns the queue let its lease end at %s UTC.', to_char(l.ends_at, 'YYYY-MM-DD HH24:MI:SS')),
            format('rowpost queue drop %s', q.queue_name)
        FROM queues AS q
        JOIN rowpost.lease AS l ON l.queue_key = q.queue_key AND l.ends_at < clock_timestamp() AT TIME ZONE 'UTC'
        UNION ALL
        SELECT
            q.queue_name,
            'settings_missing',
            'With the default settings autovacuum starts too late for a queue: it waits for a share of the table to be dead.',
            format('rowpost queue maintain %s', q.queue_name)
        FROM queues AS q
        JOIN pg_class AS c ON c.oid = q.table_id
        WHERE q.kind <> 'external'
          AND NOT coalesce(c.reloptions, '{}') @> ARRAY[
              'autovacuum_vacuum_scale_factor=0', 'autovacuum_vacuum_threshold=2000', 'autovacuum_vacuum_cost_delay=0',
              'autovacuum_analyze_scale_factor=0', 'autovacuum_analyze_threshold=2000', 'vacuum_truncate=off'
          ]
        UNION ALL
        SELECT
            q.queue_name,
            'waiters_missing',
            'The sequence with the wake-up requests of this queue is missing: senders notify no supervisor.',
            format('CREATE SEQUENCE rowpost.%I;', 'waiters:' || q.queue_key)
        FROM queues AS q
        WHERE q.kind <> 'external'
          AND to_regclass(format('rowpost.%I', 'waiters:' || q.queue_key)) IS NULL
        UNION ALL
        SELECT
            q.queue_name,
            'waiters_unlogged',
            'The sequence with the wake-up requests of this queue is not logged. After a failover no message can be sent.',
            format('DROP SEQUENCE rowpost.%1$I; CREATE SEQUENCE rowpost.%1$I;', 'waiters:' || q.queue_key)
        FROM queues AS q
        JOIN pg_class AS c ON c.oid = to_regclass(format('rowpost.%I', 'waiters:' || q.queue_key)) AND c.relpersistence = 'u'
        WHERE q.kind <> 'external'
        UNION ALL
        SELECT
            q.queue_name,
            'index_invalid',
            format('The index %s was left behind by an interrupted REINDEX or CREATE INDEX.', i.indexrelid::regclass),
            format('DROP INDEX CONCURRENTLY %s;', i.indexrelid::regclass)
        FROM queues AS q
        JOIN pg_index AS i ON i.indrelid = q.table_id AND NOT i.indisvalid
        WHERE q.kind <> 'external'
        UNION ALL
        SELECT
            q.queue_name,
            'bloated',
            rowpost._describe_bloat(q.table_id),
            format('rowpost queue maintain %s', q.queue_name)
        FROM queues AS q
        WHERE q.kind <> 'external' AND rowpost._describe_bloat(q.table_id) IS NOT NULL
        UNION ALL
        SELECT
            d.queue_name,
            'dead_rows',
            format('%s dead rows have not been removed.', d.dead_rows),
            format('rowpost queue maintain %s', d.queue_name)
        FROM dead AS d
        WHERE d.dead_rows >= 10000
        UNION ALL
        SELECT
            d.queue_name,
            'transaction_open',
            format('Session %s has a transaction open since %s: dead rows that are newer than it cannot be removed.', a.pid, a.xact_start),
            format('SELECT pg_terminate_backend(%s);', a.pid)
        FROM dead AS d
        JOIN pg_stat_activity AS a ON a.backend_xmin IS NOT NULL AND a.xact_start < clock_timestamp() - interval '5 minutes'
        WHERE d.dead_rows >= 10000
        UNION ALL
        SELECT
            q.queue_name,
            'procedure_missing',
            format('The procedure %s of this queue is missing.', p.name),
            'rowpost apply'
        FROM queues AS q
        CROSS JOIN (
            VALUES
                {queue_procedures}
        ) AS p (name, queues)
        WHERE (p.queues = 'all' OR (p.queues = 'own' AND q.kind <> 'external') OR (p.queues = 'delayed' AND q.delayed))
          AND to_regproc(format('rowpost.%I', p.name || ':' || q.queue_key)) IS NULL
    )
    SELECT f.queue_name, f.finding, f.detail, f.remedy
    FROM findings AS f
    ORDER BY f.queue_name, f.finding, f.detail;
END
$rowpost$;
