-- Records deadlocks, long lock waits and lock escalations of this database: an Extended Events session, in a file of at most 5 x 20 MB.
-- SQL Server 2016 and later, and Managed Instance (with a URL of a storage container as the filename). Needs ALTER ANY EVENT SESSION.
-- Blocked processes are reported only if the server's setting is above 0: EXEC sys.sp_configure N'blocked process threshold (s)', 5;
-- Set the name of the database, and run it; running it again changes nothing. To remove it: DROP EVENT SESSION rowpost_deadlocks ON SERVER;
-- sqlcmd and SQL Server Agent connect with QUOTED_IDENTIFIER OFF, with which views of the server's XML cannot be read.
SET ANSI_NULLS, QUOTED_IDENTIFIER ON;
GO
SET NOCOUNT, XACT_ABORT ON;

IF NOT EXISTS (SELECT 1 FROM sys.server_event_sessions AS s WHERE s.name = N'rowpost_deadlocks') -- noqa: PRS
    CREATE EVENT SESSION rowpost_deadlocks ON SERVER
    ADD EVENT sqlserver.xml_deadlock_report,
    ADD EVENT sqlserver.blocked_process_report
    (WHERE (sqlserver.database_name = N'shop')),
    ADD EVENT sqlserver.lock_escalation
    (WHERE (sqlserver.database_name = N'shop'))
    ADD TARGET package0.event_file (SET filename = N'rowpost_deadlocks.xel', max_file_size = 20, max_rollover_files = 5)
    WITH (MAX_MEMORY = 4096 KB, EVENT_RETENTION_MODE = ALLOW_SINGLE_EVENT_LOSS, MAX_DISPATCH_LATENCY = 30 SECONDS, STARTUP_STATE = ON);
GO
SET XACT_ABORT OFF; -- an error that is caught ends nothing

BEGIN TRY
    EXEC (N'ALTER EVENT SESSION rowpost_deadlocks ON SERVER STATE = START;');
END TRY
BEGIN CATCH
    IF ERROR_NUMBER() <> 25705 -- it runs already
        THROW;
END CATCH;
GO
