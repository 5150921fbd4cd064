SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[list_writers:{queue_key}]
AS
/*
Returns the transactions that describe_stream names as writers, with the sessions that have them open.
Rights:    VIEW SERVER STATE, from SQL Server 2022 on VIEW SERVER PERFORMANCE STATE, in Azure SQL Database VIEW DATABASE STATE.
Atomicity: reads only.
Locking:   none.
Order:     the oldest transaction first.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- The views have the server's local time.
DECLARE @to_utc int = -DATEPART(TZOFFSET, SYSDATETIMEOFFSET());

SELECT
    w.writer AS writer,
    CASE WHEN w.session_id > 0 THEN w.session_id END AS process,
    DATEADD(MINUTE, @to_utc, t.transaction_begin_time) AS since,
    s.program_name AS program
FROM
(
    SELECT DISTINCT
        CONCAT(CASE WHEN l.request_session_id < 0 THEN N'-1/' ELSE N'' END, l.request_owner_id) AS writer,
        l.request_owner_id AS transaction_id,
        l.request_session_id AS session_id
    FROM sys.dm_tran_locks AS l
    WHERE l.resource_type = N'OBJECT'
      AND l.resource_database_id = DB_ID()
      AND l.resource_associated_entity_id = OBJECT_ID(N'{queue_table}', N'U')
      AND l.request_mode IN (N'IX', N'SIX', N'UIX', N'X', N'BU', N'Sch-M')
      AND l.request_session_id <> @@SPID
) AS w
LEFT JOIN sys.dm_exec_sessions AS s ON w.session_id = s.session_id
LEFT JOIN sys.dm_tran_active_transactions AS t ON w.transaction_id = t.transaction_id
ORDER BY t.transaction_begin_time, w.writer;
GO
