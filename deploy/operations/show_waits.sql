-- Shows what rowpost's sessions wait for now, and what its procedures have cost since their plans were cached. Changes nothing.
-- SQL Server. Run it in the queue's database. Needs VIEW SERVER STATE (from SQL Server 2022 on: VIEW SERVER PERFORMANCE STATE).
-- sqlcmd and SQL Server Agent connect with QUOTED_IDENTIFIER OFF, with which views of the server's XML cannot be read.
SET ANSI_NULLS, QUOTED_IDENTIFIER ON;
GO
SET NOCOUNT ON;

SELECT
    s.session_id,
    s.program_name,
    s.open_transaction_count,
    r.wait_type,
    r.wait_time AS wait_ms,
    r.wait_resource,
    r.blocking_session_id,
    OBJECT_NAME(t.objectid, t.dbid) AS procedure_name
FROM sys.dm_exec_sessions AS s
LEFT JOIN sys.dm_exec_requests AS r ON s.session_id = r.session_id
OUTER APPLY sys.dm_exec_sql_text(r.sql_handle) AS t
WHERE s.program_name LIKE N'rowpost%' AND s.database_id = DB_ID()
ORDER BY r.wait_time DESC;

SELECT TOP (50)
    OBJECT_NAME(p.object_id, p.database_id) AS procedure_name,
    p.execution_count,
    p.total_worker_time / p.execution_count AS cpu_us,
    p.total_elapsed_time / p.execution_count AS elapsed_us,
    p.total_logical_reads / p.execution_count AS logical_reads,
    p.cached_time
FROM sys.dm_exec_procedure_stats AS p
WHERE p.database_id = DB_ID() AND OBJECT_SCHEMA_NAME(p.object_id, p.database_id) = N'rowpost'
ORDER BY p.total_worker_time DESC;

SELECT
    OBJECT_NAME(i.object_id) AS table_name,
    i.index_id,
    i.row_lock_wait_count,
    i.page_lock_wait_count,
    i.index_lock_promotion_count AS lock_escalations,
    i.page_latch_wait_count,
    i.page_latch_wait_in_ms,
    i.leaf_ghost_count
FROM sys.dm_db_index_operational_stats(DB_ID(), NULL, NULL, NULL) AS i
INNER JOIN sys.objects AS o ON i.object_id = o.object_id AND o.type = 'U'
ORDER BY i.page_latch_wait_in_ms DESC;
GO
