SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.cancel_operation
    @operation_id bigint,
    @user_name nvarchar(200) = NULL -- who cancels it, if the login does not say it
AS
/*
Requests that an operation stops, and returns whether it had not ended. Its process sees it with its next report.
Atomicity: in the caller's transaction.
Locking:   the row of the operation: waits for the process that executes it, until its transaction of some messages ends.
An operation whose process has been silent for 30 seconds is cancelled at once.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @now datetime2(3) = SYSUTCDATETIME();
DECLARE @who nvarchar(400) = CASE WHEN @user_name IS NULL THEN ORIGINAL_LOGIN() ELSE CONCAT(@user_name, N' (', ORIGINAL_LOGIN(), N')') END;

UPDATE a
SET
    a.cancelled_by = ISNULL(a.cancelled_by, @who),
    a.operation_state = CASE WHEN a.changed_at < DATEADD(SECOND, -30, @now) OR a.operation_state = N'interrupted' THEN N'cancelled' ELSE a.operation_state END,
    a.ended_at = CASE WHEN a.changed_at < DATEADD(SECOND, -30, @now) OR a.operation_state = N'interrupted' THEN @now END
FROM rowpost.operation_log AS a
WHERE a.operation_id = @operation_id
  AND a.operation_state IN (N'running', N'interrupted');

SELECT CAST(@@ROWCOUNT AS bit) AS cancelled;
GO
