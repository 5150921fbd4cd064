SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.unregister_saga
    @saga_key nvarchar(128)
AS
/*
Takes a type of saga out of the registry; its table stays.
Atomicity: one DELETE in the caller's transaction.
Locking:   the registry of sagas, until the caller commits: deployments only.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE s
FROM rowpost.saga AS s
WHERE s.saga_key = @saga_key;
GO
