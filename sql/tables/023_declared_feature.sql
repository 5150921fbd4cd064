-- The features that an environment's deployments have declared. A deployment drops only what its own environment declared.
IF OBJECT_ID(N'rowpost.declared_feature', N'U') IS NULL
    CREATE TABLE rowpost.declared_feature
    (
        environment nvarchar(200) NOT NULL,
        feature nvarchar(200) NOT NULL,
        CONSTRAINT declared_feature_key PRIMARY KEY CLUSTERED (environment, feature)
    );
GO
