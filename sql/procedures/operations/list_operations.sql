SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_operations
    @count int, -- maximum number of operations, 1 to 1000
    @before_id bigint = NULL -- only operations with a lower number
AS
/*
Lists what operators did, the last one first, one page at a time.
Atomicity: reads only.
Locking:   none that lasts. Without READ_COMMITTED_SNAPSHOT it waits for the batch of an operation that runs.
Order:     by number, the highest first.
An operation whose process has been silent for 30 seconds is listed as interrupted.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @count IS NULL OR @count NOT BETWEEN 1 AND 1000
    THROW 51003, N'The number of operations to list must be between 1 and 1000.', 1;

DECLARE @now datetime2(3) = SYSUTCDATETIME();

SELECT TOP (@count)
    a.operation_id,
    a.operation_name,
    CASE WHEN a.operation_state = N'running' AND a.changed_at < DATEADD(SECOND, -30, @now) THEN N'interrupted' ELSE a.operation_state END AS operation_state,
    a.client,
    a.login_name,
    a.user_name,
    a.queue_name,
    a.message_id,
    a.details,
    a.reason,
    a.outcome,
    a.started_at,
    a.changed_at,
    a.ended_at,
    a.total_count,
    a.done_count,
    a.gone_count,
    a.refused_count,
    a.reached,
    a.up_to,
    a.cancelled_by
FROM rowpost.operation_log AS a
WHERE @before_id IS NULL OR a.operation_id < @before_id
ORDER BY a.operation_id DESC
OPTION (RECOMPILE); -- with the value of @before_id in the plan, each page begins at its first number
GO
