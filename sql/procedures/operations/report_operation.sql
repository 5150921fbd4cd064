SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.report_operation
    @operation_id bigint,
    @executor uniqueidentifier, -- as given to record_operation or resume_operation
    @operation_state nvarchar(20) = NULL, -- its end: done, cancelled, failed or interrupted; NULL: it goes on
    @total bigint = NULL, -- messages that it applies to; NULL: as before
    @done bigint = NULL, -- messages that it has changed; NULL: as before
    @gone bigint = NULL, -- messages that another session had removed or locked; NULL: as before
    @refused bigint = NULL, -- messages that stay because they cannot be changed; NULL: as before
    @reached bigint = NULL, -- the last row version that is finished; NULL: as before
    @up_to bigint = NULL, -- the last row version that it applies to; NULL: as before
    @outcome nvarchar(1000) = NULL -- NULL: as before
AS
/*
Records how far an operation has come, or that it has ended, and returns whether somebody has cancelled it.
Atomicity: one row in the caller's transaction, which is that of the messages that were changed.
Locking:   the row of the operation.
Returns no row if the operation has ended, or if another process executes it: then the caller rolls back and stops.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @now datetime2(3) = SYSUTCDATETIME();

UPDATE a
SET
    a.operation_state = ISNULL(@operation_state, a.operation_state),
    a.total_count = ISNULL(@total, a.total_count),
    a.done_count = ISNULL(@done, a.done_count),
    a.gone_count = ISNULL(@gone, a.gone_count),
    a.refused_count = ISNULL(@refused, a.refused_count),
    a.reached = ISNULL(@reached, a.reached),
    a.up_to = ISNULL(@up_to, a.up_to),
    a.outcome = ISNULL(@outcome, a.outcome),
    a.changed_at = @now,
    a.ended_at = CASE WHEN @operation_state IS NOT NULL THEN @now END
FROM rowpost.operation_log AS a
WHERE a.operation_id = @operation_id
  AND a.executor = @executor
  AND a.ended_at IS NULL;

IF @@ROWCOUNT = 0
    SET @executor = NULL;

SELECT CAST(CASE WHEN a.cancelled_by IS NULL THEN 0 ELSE 1 END AS bit) AS is_cancelled
FROM rowpost.operation_log AS a
WHERE a.operation_id = @operation_id
  AND a.executor = @executor;
GO
