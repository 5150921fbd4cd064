IF OBJECT_ID(N'rowpost.declared_feature', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- The features that an environment's deployments have declared. A deployment drops only what its own environment declared.
CREATE TABLE rowpost.declared_feature
(
    environment nvarchar(200) NOT NULL,
    feature nvarchar(200) NOT NULL,
    CONSTRAINT declared_feature_key PRIMARY KEY CLUSTERED (environment, feature)
);
GO
SET NOEXEC OFF;
GO
