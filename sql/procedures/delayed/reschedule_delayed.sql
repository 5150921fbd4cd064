SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[reschedule_delayed:{queue_key}]
    @delayed_key nvarchar(60), -- as browse_delayed returns it
    @delay_ms bigint -- milliseconds until the message is due, by this server's clock; negative: due now
AS
/*
Lets a delayed message be due at another time, and returns whether it was there.
Atomicity: one UPDATE in the caller's transaction.
Locking:   one row; a row that a mover has locked is not changed.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

IF @delay_ms IS NULL OR @delay_ms NOT BETWEEN -3155760000000 AND 3155760000000
    THROW 51010, N'The delay must be given, and be at most 100 years.', 1;

DECLARE @due datetime = TRY_CONVERT(datetime, LEFT(@delayed_key, 23), 121);
DECLARE @row_version bigint = TRY_CONVERT(bigint, SUBSTRING(@delayed_key, 25, 20));

UPDATE d
SET d.Due = DATEADD(MILLISECOND, CAST(@delay_ms % 86400000 AS int), DATEADD(DAY, CAST(@delay_ms / 86400000 AS int), GETUTCDATE()))
FROM {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE d.Due BETWEEN DATEADD(MILLISECOND, -3, @due) AND DATEADD(MILLISECOND, 3, @due) -- the key has milliseconds, and the index is on Due
  AND d.RowVersion = @row_version;

SELECT CAST(CASE WHEN @@ROWCOUNT > 0 THEN 1 ELSE 0 END AS bit) AS rescheduled;
GO
