SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_features
AS
/*
Lists the features that environments have declared here.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by environment and feature.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT d.environment, d.feature
FROM rowpost.declared_feature AS d
ORDER BY d.environment, d.feature;
GO
