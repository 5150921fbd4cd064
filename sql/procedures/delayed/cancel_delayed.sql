SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[cancel_delayed:{queue_key}]
    @delayed_key nvarchar(60) -- as browse_delayed returns it
AS
/*
Removes and returns a delayed message, unless a mover has locked it.
Atomicity: one DELETE in the caller's transaction; a rollback returns the message to its place.
Locking:   one row.
*/
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

DECLARE @due datetime = TRY_CONVERT(datetime, LEFT(@delayed_key, 23), 121);
DECLARE @row_version bigint = TRY_CONVERT(bigint, SUBSTRING(@delayed_key, 25, 20));

-- rule output_into: the removed message would be written and read twice more; a trigger on a queue table is not supported.
DELETE d
OUTPUT CAST(deleted.Due AS datetime2(3)) AS due, deleted.Headers AS headers, deleted.Body AS body
FROM {delayed_table} AS d WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK, FORCESEEK)
WHERE d.Due BETWEEN DATEADD(MILLISECOND, -3, @due) AND DATEADD(MILLISECOND, 3, @due) -- the key has milliseconds, and the index is on Due
  AND d.RowVersion = @row_version;
GO
