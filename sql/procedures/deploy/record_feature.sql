SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_feature
    @environment nvarchar(400),
    @feature nvarchar(400) -- a feature of the contract, or delayed:<queue key>
AS
/*
Records that an environment declares a feature; nothing changes if it is recorded.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.declared_feature.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@environment, N'.')) > 201 OR LEN(CONCAT(@feature, N'.')) > 201
    THROW 51034, N'The feature cannot be recorded: its name and that of the environment may have at most 200 characters each.', 1;

INSERT INTO rowpost.declared_feature (environment, feature)
SELECT @environment, @feature
WHERE NOT EXISTS (SELECT 1 FROM rowpost.declared_feature AS d WHERE d.environment = @environment AND d.feature = @feature);
GO
