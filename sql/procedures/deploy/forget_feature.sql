SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.forget_feature
    @environment nvarchar(400),
    @feature nvarchar(400)
AS
/*
Deletes the record that an environment declares a feature.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.declared_feature.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE d
FROM rowpost.declared_feature AS d
WHERE d.environment = @environment
  AND d.feature = @feature;
GO
