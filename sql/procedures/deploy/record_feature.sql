SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_feature
    @environment nvarchar(200),
    @feature nvarchar(200) -- a feature of the contract, or delayed:<queue key>
AS
/*
Records that an environment declares a feature; nothing changes if it is recorded.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.declared_feature.
*/
SET NOCOUNT, XACT_ABORT ON;

INSERT INTO rowpost.declared_feature (environment, feature)
SELECT @environment, @feature
WHERE NOT EXISTS (SELECT 1 FROM rowpost.declared_feature AS d WHERE d.environment = @environment AND d.feature = @feature);
GO
