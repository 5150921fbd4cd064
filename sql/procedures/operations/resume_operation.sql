SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.resume_operation
    @operation_id bigint,
    @executor uniqueidentifier -- names the process that goes on with it
AS
/*
Gives an operation that was interrupted, cancelled or failed to another process, and returns whether it did.
Atomicity: in the caller's transaction.
Locking:   the row of the operation.
A process that is silent for 30 seconds loses its operation: its next report_operation returns no row, so that it rolls back.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @now datetime2(3) = SYSUTCDATETIME();

UPDATE a
SET a.operation_state = N'running', a.executor = @executor, a.changed_at = @now, a.ended_at = NULL, a.cancelled_by = NULL
FROM rowpost.operation_log AS a
WHERE a.operation_id = @operation_id
  AND a.executor IS NOT NULL
  AND (a.operation_state IN (N'interrupted', N'cancelled', N'failed') OR (a.operation_state = N'running' AND a.changed_at < DATEADD(SECOND, -30, @now)));

SELECT CAST(@@ROWCOUNT AS bit) AS resumed;
GO
