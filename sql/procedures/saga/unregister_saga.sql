SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.unregister_saga
    @saga_key nvarchar(256)
AS
/*
Removes a type of saga from the registry; its table stays.
Atomicity: one DELETE in the caller's transaction.
Locking:   the registry of sagas, until the caller commits; only deployments call it.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE s
FROM rowpost.saga AS s
WHERE s.saga_key = @saga_key;
GO
