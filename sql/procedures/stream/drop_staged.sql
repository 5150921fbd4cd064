SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.drop_staged
    @job_key nvarchar(200) = NULL, -- NULL: of every job
    @seconds int = NULL -- only messages that were staged longer ago than this; NULL: all
AS
/*
Deletes staged messages that are not going to be sent, because their attempt failed or their job was stopped.
Atomicity: one DELETE in the caller's transaction.
Locking:   the staged rows.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @seconds < 0
    THROW 51003, N'The age must be 0 seconds or more.', 1;

DELETE FROM s
FROM rowpost.staged_message AS s
WHERE (@job_key IS NULL OR s.job_key = @job_key)
  AND (@seconds IS NULL OR s.staged_at < DATEADD(SECOND, -@seconds, SYSUTCDATETIME()));

DECLARE @dropped bigint = @@ROWCOUNT;
SELECT @dropped AS dropped;
GO
