SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[complete_saga:{saga_key}]
    @id uniqueidentifier,
    @concurrency int -- as it was loaded
AS
/*
Deletes an instance that is complete, unless another message has changed or completed it since it was loaded.
Atomicity: one DELETE in the caller's transaction.
Locking:   the instance's row.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE s
FROM {saga_table} AS s WITH (ROWLOCK)
WHERE s.Id = @id
  AND s.Concurrency = @concurrency;

IF @@ROWCOUNT = 0
    THROW 51015, N'The saga cannot be stored: another message has changed or completed it. A retry loads its new state.', 1;
GO
