SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.check_queue
    @queue_name nvarchar(800) = NULL -- NULL checks every queue
AS
/*
Compares queue tables with what a queue needs, and returns what is missing and the command that repairs it.
The catalog may have another collation than the database, as in Azure SQL Database: what is concatenated gets the database's.
Atomicity: reads only the catalog.
Locking:   none that lasts.
Order:     by queue.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128);
IF @queue_name IS NOT NULL
    EXEC rowpost._resolve_queue @queue_name = @queue_name, @queue_key = @queue_key OUTPUT;

-- Azure SQL Database (5), Managed Instance (8) and Enterprise (3) build an index while others use the table.
DECLARE @online bit = CASE WHEN CAST(SERVERPROPERTY(N'EngineEdition') AS int) IN (3, 5, 8) THEN 1 ELSE 0 END;
DECLARE @with_online nvarchar(30) = CASE WHEN @online = 1 THEN N' WITH (ONLINE = ON)' ELSE N'' END;
DECLARE @size nvarchar(100) = CASE WHEN @online = 1 THEN N' -- reads the whole table' ELSE N' -- reads the whole table, and locks it meanwhile' END;

WITH queues AS (
    SELECT
        q.queue_name,
        q.queue_key,
        q.kind,
        q.delayed,
        q.lease,
        CONCAT(QUOTENAME(q.schema_name), N'.', QUOTENAME(q.table_name)) AS table_name,
        OBJECT_ID(CONCAT(QUOTENAME(q.schema_name), N'.', QUOTENAME(q.table_name)), N'U') AS table_id
    FROM rowpost.queue AS q
    WHERE q.catalog_name IS NULL
      AND (@queue_key IS NULL OR q.queue_key = @queue_key)
),
needed AS (
    SELECT n.column_name, n.column_form
    FROM
    (
        VALUES
            (N'Id', N'uniqueidentifier NOT NULL DEFAULT (NEWID())'),
            (N'Expires', N'datetime NULL'),
            (N'Headers', N'nvarchar(max) NOT NULL DEFAULT (N'''')'),
            (N'Body', N'varbinary(max) NULL'),
            (N'RowVersion', N'bigint IDENTITY (1, 1) NOT NULL')
    ) AS n(column_name, column_form)
),
leading_keys AS (
    SELECT
        ic.object_id,
        COL_NAME(ic.object_id, ic.column_id) AS column_name,
        i.type_desc,
        i.is_disabled,
        QUOTENAME(i.name) COLLATE database_default AS index_name,
        CASE WHEN i.is_primary_key = 1 OR i.is_unique_constraint = 1 THEN 1 ELSE 0 END AS is_constraint
    FROM sys.index_columns AS ic
    INNER JOIN sys.indexes AS i
        ON ic.object_id = i.object_id AND ic.index_id = i.index_id
    WHERE ic.key_ordinal = 1
)
SELECT f.queue_name, f.finding, f.detail, f.remedy
FROM
(
    SELECT
        q.queue_name,
        N'table_missing' AS finding,
        CONCAT(N'The table ', q.table_name, N' does not exist, or you may not see it.') AS detail,
        CASE
            WHEN q.kind = 'external' THEN CONCAT(N'rowpost queue drop ', q.queue_name, N', or let its owner make the table')
            ELSE N'rowpost apply'
        END AS remedy
    FROM queues AS q
    WHERE q.table_id IS NULL
    UNION ALL
    SELECT
        q.queue_name,
        N'column_missing',
        CONCAT(N'The column ', n.column_name, N' is missing.'),
        CONCAT(N'ALTER TABLE ', q.table_name, N' ADD ', n.column_name, N' ', n.column_form, N';')
    FROM queues AS q
    CROSS JOIN needed AS n
    WHERE q.table_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM sys.columns AS c WHERE c.object_id = q.table_id AND c.name COLLATE database_default = n.column_name)
    UNION ALL
    SELECT
        q.queue_name,
        N'column_mandatory',
        CONCAT(N'The column ', QUOTENAME(c.name) COLLATE database_default, N' allows no null and has no default: messages cannot be stored.'),
        CASE
            WHEN c.name COLLATE database_default = N'RowVersion'
                THEN N'No column becomes an identity: move the messages into a new table whose RowVersion is bigint IDENTITY(1, 1).'
            ELSE CONCAT(
                N'ALTER TABLE ', q.table_name, N' ALTER COLUMN ', QUOTENAME(c.name) COLLATE database_default, N' ',
                TYPE_NAME(c.user_type_id) COLLATE database_default,
                CASE
                    WHEN c.system_type_id <> c.user_type_id OR TYPE_NAME(c.system_type_id) = N'xml' THEN N'' -- an alias has its length; xml has none
                    WHEN c.max_length = -1 THEN N'(max)'
                    WHEN TYPE_NAME(c.system_type_id) IN (N'nvarchar', N'nchar') THEN CONCAT(N'(', c.max_length / 2, N')')
                    WHEN TYPE_NAME(c.system_type_id) IN (N'varchar', N'char', N'varbinary', N'binary') THEN CONCAT(N'(', c.max_length, N')')
                    WHEN TYPE_NAME(c.system_type_id) IN (N'decimal', N'numeric') THEN CONCAT(N'(', c.[precision], N', ', c.scale, N')')
                    WHEN TYPE_NAME(c.system_type_id) IN (N'datetime2', N'datetimeoffset', N'time') THEN CONCAT(N'(', c.scale, N')')
                END,
                N' NULL;'
            )
        END
    FROM queues AS q
    INNER JOIN sys.columns AS c
        ON q.table_id = c.object_id AND c.is_nullable = 0 AND c.is_identity = 0 AND c.is_computed = 0 AND c.default_object_id = 0
    WHERE TYPE_NAME(c.system_type_id) <> N'timestamp' -- the server fills it
      AND c.name COLLATE database_default NOT IN (N'Id', N'Expires', N'Headers', N'Body', N'Recoverable')
    UNION ALL
    SELECT
        q.queue_name,
        N'headers_varchar',
        N'Headers is varchar: characters outside its code page are lost.',
        CONCAT(N'ALTER TABLE ', q.table_name, N' ALTER COLUMN Headers nvarchar(max) NOT NULL;')
    FROM queues AS q
    INNER JOIN sys.columns AS c
        ON q.table_id = c.object_id AND c.name = N'Headers' AND TYPE_NAME(c.system_type_id) = N'varchar'
    UNION ALL
    SELECT
        q.queue_name,
        N'column_shrunk',
        CONCAT(N'The column ', c.name COLLATE database_default, N' holds at most ', c.max_length, N' bytes: longer messages cannot be stored.'),
        CONCAT(
            N'ALTER TABLE ', q.table_name, N' ALTER COLUMN ', c.name COLLATE database_default, N' ',
            CASE WHEN c.name = N'Headers' THEN N'nvarchar' ELSE TYPE_NAME(c.system_type_id) COLLATE database_default END,
            CASE WHEN c.is_nullable = 1 THEN N'(max) NULL;' ELSE N'(max) NOT NULL;' END
        )
    FROM queues AS q
    INNER JOIN sys.columns AS c
        ON q.table_id = c.object_id AND c.name IN (N'Headers', N'Body') AND c.max_length <> -1
    UNION ALL
    SELECT
        q.queue_name,
        N'expires_index_missing',
        N'No index starts with Expires: purging expired messages reads the whole queue.',
        CONCAT(N'CREATE NONCLUSTERED INDEX Index_Expires ON ', q.table_name, N' (Expires) INCLUDE (Id, RowVersion) WHERE Expires IS NOT NULL',
               @with_online, N';', @size)
    FROM queues AS q
    WHERE q.table_id IS NOT NULL
      AND q.kind <> 'external'
      AND NOT EXISTS (SELECT 1 FROM leading_keys AS k WHERE k.object_id = q.table_id AND k.column_name = N'Expires')
    UNION ALL
    SELECT
        q.queue_name,
        N'row_version_index_missing',
        N'No index starts with RowVersion: messages cannot be received, because that would read and lock the whole queue (error 8622).',
        CONCAT(N'CREATE NONCLUSTERED INDEX Index_RowVersion ON ', q.table_name, N' (RowVersion)', @with_online, N';', @size)
    FROM queues AS q
    WHERE q.table_id IS NOT NULL
      AND q.kind <> 'external'
      AND NOT EXISTS (SELECT 1 FROM leading_keys AS k WHERE k.object_id = q.table_id AND k.column_name = N'RowVersion')
    UNION ALL
    SELECT
        q.queue_name,
        N'row_version_index_clustered',
        N'The index on RowVersion is clustered, but the registry says nonclustered: more than eight concurrent receivers wait for the same page.',
        CONCAT(
            CASE
                WHEN k.is_constraint = 1 THEN CONCAT(N'ALTER TABLE ', q.table_name, N' DROP CONSTRAINT ', k.index_name)
                ELSE CONCAT(N'DROP INDEX ', k.index_name, N' ON ', q.table_name)
            END,
            N'; CREATE NONCLUSTERED INDEX Index_RowVersion ON ', q.table_name, N' (RowVersion); -- writes the table anew, and locks it meanwhile'
        )
    FROM queues AS q
    INNER JOIN rowpost.queue AS r
        ON q.queue_key = r.queue_key AND r.[clustered] = 0
    INNER JOIN leading_keys AS k
        ON q.table_id = k.object_id AND k.column_name = N'RowVersion' AND k.type_desc = N'CLUSTERED'
    WHERE q.kind <> 'external'
    UNION ALL
    SELECT
        q.queue_name,
        N'index_disabled',
        CONCAT(N'The index ', k.index_name, N' on ', k.column_name COLLATE database_default, N' is disabled: the procedures that need it fail.'),
        CONCAT(N'ALTER INDEX ', k.index_name, N' ON ', q.table_name, N' REBUILD; -- reads the whole table, and locks it meanwhile')
    FROM queues AS q
    INNER JOIN leading_keys AS k
        ON q.table_id = k.object_id AND k.is_disabled = 1 AND k.column_name IN (N'Expires', N'RowVersion')
    WHERE q.kind <> 'external'
    UNION ALL
    SELECT
        q.queue_name,
        N'lock_escalation',
        N'Many row locks may become one lock on the table, for which receivers wait.',
        CONCAT(N'ALTER TABLE ', q.table_name, N' SET (LOCK_ESCALATION = DISABLE);')
    FROM queues AS q
    INNER JOIN sys.tables AS t
        ON q.table_id = t.object_id AND t.lock_escalation <> 1
    WHERE q.kind <> 'external'
    UNION ALL
    SELECT
        q.queue_name,
        N'recoverable_missing',
        N'The column Recoverable is missing: endpoints before NServiceBus 7 need it.',
        CONCAT(N'ALTER TABLE ', q.table_name, N' ADD Recoverable bit NOT NULL DEFAULT (1);')
    FROM queues AS q
    WHERE q.table_id IS NOT NULL
      AND q.kind <> 'external'
      AND COL_LENGTH(q.table_name, N'Recoverable') IS NULL
    UNION ALL
    SELECT
        q.queue_name,
        N'recoverable_changed',
        N'Recoverable was added to the table or dropped, or its default was, since the last deployment: messages cannot be stored.',
        N'rowpost apply'
    FROM queues AS q
    INNER JOIN sys.sql_modules AS m
        ON m.object_id = OBJECT_ID(CONCAT(N'rowpost.', QUOTENAME(CONCAT(N'send_message:', q.queue_key))))
    LEFT OUTER JOIN sys.columns AS c
        ON q.table_id = c.object_id AND c.name = N'Recoverable' AND c.default_object_id = 0
    WHERE q.table_id IS NOT NULL
      AND CASE WHEN CHARINDEX(N'/*, Recoverable */', m.[definition]) > 0 THEN 0 ELSE 1 END <> CASE WHEN c.column_id IS NULL THEN 0 ELSE 1 END
    UNION ALL
    SELECT
        q.queue_name,
        N'owner_differs',
        CONCAT(
            QUOTENAME(USER_NAME(OBJECTPROPERTY(q.table_id, N'OwnerId'))) COLLATE database_default, N' owns the table, and ',
            QUOTENAME(USER_NAME(s.principal_id)) COLLATE database_default,
            N' the schema rowpost: a login that may only execute procedures is refused.'
        ),
        CASE
            WHEN s.principal_id = USER_ID(N'dbo') THEN CONCAT(
                N'ALTER AUTHORIZATION ON OBJECT::', q.table_name,
                N' TO dbo; -- removes all rights on the table: grant those of others again, then run rowpost apply and rowpost queue grant'
            )
            ELSE N'ALTER AUTHORIZATION ON SCHEMA::rowpost TO dbo; -- then run rowpost apply'
        END
    FROM queues AS q
    INNER JOIN sys.schemas AS s
        ON s.name = N'rowpost' AND OBJECTPROPERTY(q.table_id, N'OwnerId') <> s.principal_id
    UNION ALL
    SELECT
        q.queue_name,
        N'trigger_enabled',
        CONCAT(N'The trigger ', QUOTENAME(t.name) COLLATE database_default, N' is enabled: messages cannot be received.'),
        CONCAT(N'ALTER TABLE ', q.table_name, N' DISABLE TRIGGER ', QUOTENAME(t.name) COLLATE database_default, N';')
    FROM queues AS q
    INNER JOIN sys.triggers AS t
        ON q.table_id = t.parent_id AND t.is_disabled = 0
    WHERE q.kind <> 'external'
    UNION ALL
    SELECT
        q.queue_name,
        N'orphaned',
        CONCAT(N'The ownership of the process that has the queue ended at ', CONVERT(nvarchar(19), l.ends_at, 120), N' UTC.'),
        CONCAT(N'rowpost queue drop ', q.queue_name)
    FROM queues AS q
    INNER JOIN rowpost.queue_ownership AS l
        ON q.queue_key = l.queue_key AND l.ends_at < SYSUTCDATETIME()
    UNION ALL
    SELECT
        q.queue_name,
        N'bloated',
        rowpost."_describe_bloat"(q.table_id),
        CONCAT(N'rowpost queue maintain ', q.queue_name)
    FROM queues AS q
    WHERE q.kind <> 'external'
      AND rowpost."_describe_bloat"(q.table_id) IS NOT NULL
    UNION ALL
    SELECT
        q.queue_name,
        N'procedure_missing',
        CONCAT(N'The procedure ', p.name, N' of this queue is missing.'),
        N'rowpost apply'
    FROM queues AS q
    CROSS JOIN
    (
        VALUES
            {queue_procedures}
    ) AS p(name, queues)
    WHERE (p.queues = 'all' OR (p.queues = 'own' AND q.kind <> 'external') OR (p.queues = 'delayed' AND q.delayed = 1)
           OR (p.queues = 'lease' AND q.lease = 1))
      AND OBJECT_ID(CONCAT(N'rowpost.', QUOTENAME(CONCAT(p.name, N':', q.queue_key))), N'P') IS NULL
) AS f
ORDER BY f.queue_name, f.finding, f.detail;
GO
