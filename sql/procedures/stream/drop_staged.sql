SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.drop_staged
    @job_key nvarchar(200) = NULL, -- NULL: of every job
    @seconds int = NULL -- only what was staged longer ago than this; NULL: all
AS
/*
Deletes staged messages that nobody sends any more: of tries that failed, or of jobs that ended before their end.
Atomicity: one DELETE in the caller's transaction.
Locking:   the staged rows.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @seconds < 0
    THROW 51003, N'An age cannot be negative.', 1;

DELETE FROM s
FROM rowpost.staged_message AS s
WHERE (@job_key IS NULL OR s.job_key = @job_key)
  AND (@seconds IS NULL OR s.staged_at < DATEADD(SECOND, -@seconds, SYSUTCDATETIME()));

DECLARE @dropped bigint = @@ROWCOUNT;
SELECT @dropped AS dropped;
GO
