SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[maintain_queue:{queue_key}]
    @offline bit = NULL -- 1: also steps that block senders and receivers while they run
WITH EXECUTE AS 'rowpost_internal'
AS
/*
Maintains the queue's table, and returns what was done and what is left to do.
Atomicity: each step is its own transaction; call it outside of a transaction. A step that fails has the state waits, with the
           server's words, and the next step runs.
Locking:   waits at most one second for a lock, so that receivers wait no longer for it. An online rebuild waits with
           low priority and stops after a minute. If the edition cannot rebuild online, an index is reorganized, which
           blocks nobody, and a heap is rebuilt only with @offline.
Rights:    runs as a user of its own, because the right to execute does not include the right to alter the table.
Statistics are updated only after such a step: each update compiles all plans of the queue again, which hints determine.
*/
SET NOCOUNT, XACT_ABORT ON;
SET LOCK_TIMEOUT 1000;

DECLARE @table_id int = OBJECT_ID(N'{queue_table}', N'U');
-- Enterprise and Developer (3), Azure SQL Database (5) and Managed Instance (8)
DECLARE @online bit = CASE WHEN CAST(SERVERPROPERTY(N'EngineEdition') AS int) IN (3, 5, 8) THEN 1 ELSE 0 END;
DECLARE @is_heap bit = CASE WHEN EXISTS (SELECT 1 FROM sys.indexes AS i WHERE i.object_id = @table_id AND i.index_id = 1) THEN 0 ELSE 1 END;
DECLARE @bloat nvarchar(200) = rowpost."_describe_bloat"(@table_id);
DECLARE @step TABLE
(
    step_number int IDENTITY (1, 1) NOT NULL,
    [action] nvarchar(30) NOT NULL,
    reason nvarchar(1000) NOT NULL,
    [statement] nvarchar(2000) NOT NULL,
    state nvarchar(10) NOT NULL
);

DECLARE @problem nvarchar(2048);

-- The linter knows neither LOCK_ESCALATION nor WAIT_AT_LOW_PRIORITY; the offline compiler does.
IF EXISTS (SELECT 1 FROM sys.tables AS t WHERE t.object_id = @table_id AND t.lock_escalation <> 1) -- noqa: PRS
BEGIN
    BEGIN TRY
        ALTER TABLE {queue_table} SET (LOCK_ESCALATION = DISABLE);
    END TRY
    BEGIN CATCH
        SET @problem = CONCAT(N' ', ERROR_MESSAGE());
    END CATCH;

    INSERT INTO @step ([action], reason, [statement], state)
    VALUES
    (
        N'settings', LEFT(CONCAT(N'Row locks must not escalate to a table lock, because receivers would wait for one another.', @problem), 1000),
        N'ALTER TABLE {queue_table} SET (LOCK_ESCALATION = DISABLE);', CASE WHEN @problem IS NULL THEN N'done' ELSE N'waits' END
    );
END;

IF @bloat IS NOT NULL
BEGIN
    SET @problem = CASE WHEN @is_heap = 1 AND @online = 0 AND ISNULL(@offline, 0) = 0 THEN N' This edition rebuilds a heap only offline.' END;

    BEGIN TRY
        IF @is_heap = 1 AND @online = 1
            ALTER TABLE {queue_table} REBUILD WITH (ONLINE = ON (WAIT_AT_LOW_PRIORITY (MAX_DURATION = 1 MINUTES, ABORT_AFTER_WAIT = SELF)));
        ELSE IF @is_heap = 1 AND @offline = 1
            ALTER TABLE {queue_table} REBUILD;
        ELSE IF @is_heap = 0 AND @online = 1
            ALTER INDEX ALL ON {queue_table} REBUILD WITH
            (
                STATISTICS_NORECOMPUTE = ON,
                ONLINE = ON (WAIT_AT_LOW_PRIORITY (MAX_DURATION = 1 MINUTES, ABORT_AFTER_WAIT = SELF))
            );
        ELSE IF @is_heap = 0 AND @offline = 1
            ALTER INDEX ALL ON {queue_table} REBUILD WITH (STATISTICS_NORECOMPUTE = ON);
        ELSE IF @is_heap = 0
            ALTER INDEX ALL ON {queue_table} REORGANIZE;

        IF @problem IS NULL
            UPDATE STATISTICS {queue_table} WITH NORECOMPUTE;
    END TRY
    BEGIN CATCH
        SET @problem = CONCAT(N' ', ERROR_MESSAGE());
    END CATCH;

    INSERT INTO @step ([action], reason, [statement], state)
    VALUES
    (
        CASE WHEN @online = 1 OR @offline = 1 OR @is_heap = 1 THEN N'rebuild' ELSE N'reorganize' END,
        LEFT(CONCAT(@bloat, @problem), 1000),
        CASE
            WHEN @is_heap = 1 THEN N'ALTER TABLE {queue_table} REBUILD'
            WHEN @online = 1 OR @offline = 1 THEN N'ALTER INDEX ALL ON {queue_table} REBUILD'
            ELSE N'ALTER INDEX ALL ON {queue_table} REORGANIZE'
        END + CASE WHEN @online = 1 THEN N' WITH (ONLINE = ON);' ELSE N';' END,
        CASE WHEN @problem IS NULL THEN N'done' ELSE N'waits' END
    );
END;

SELECT s.[action], s.reason, s.[statement], s.state
FROM @step AS s
ORDER BY s.step_number;
GO
