SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.resume_act
    @act_id bigint,
    @executor uniqueidentifier -- names the process that goes on with it
AS
/*
Gives an act that was interrupted, cancelled or failed to another process, and returns whether it did.
Atomicity: in the caller's transaction.
Locking:   the row of the act.
A process that is silent for 30 seconds loses its act: its next report_act returns no row, so that it rolls back.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @now datetime2(3) = SYSUTCDATETIME();

UPDATE a
SET a.act_state = N'running', a.executor = @executor, a.changed_at = @now, a.ended_at = NULL, a.cancelled_by = NULL
FROM rowpost.act AS a
WHERE a.act_id = @act_id
  AND a.executor IS NOT NULL
  AND (a.act_state IN (N'interrupted', N'cancelled', N'failed') OR (a.act_state = N'running' AND a.changed_at < DATEADD(SECOND, -30, @now)));

SELECT CAST(@@ROWCOUNT AS bit) AS resumed;
GO
