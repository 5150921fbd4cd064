SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[update_saga:{saga_key}]
    @id uniqueidentifier,
    @concurrency int, -- as it was loaded
    @data nvarchar(max), -- the state as JSON
    @persistence_version varchar(46),
    @saga_type_version varchar(46)
AS
/*
Stores an instance's new state, unless another message has changed or completed it since it was loaded.
Atomicity: one UPDATE in the caller's transaction.
Locking:   the instance's row.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@persistence_version, N'.')) > 24 OR LEN(CONCAT(@saga_type_version, N'.')) > 24
    THROW 51034, N'The saga cannot be stored: its two versions may have at most 23 characters each.', 1;

UPDATE s
SET s.Data = @data,
    s.PersistenceVersion = @persistence_version,
    s.SagaTypeVersion = @saga_type_version,
    s.Concurrency = @concurrency + 1
FROM {saga_table} AS s WITH (ROWLOCK)
WHERE s.Id = @id
  AND s.Concurrency = @concurrency;

IF @@ROWCOUNT = 0
    THROW 51015, N'The saga cannot be stored: another message has changed or completed it. A retry loads its new state.', 1;
GO
