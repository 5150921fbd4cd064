-- The features that an environment's deployments have declared. A deployment drops only what its own environment declared.
CREATE TABLE IF NOT EXISTS rowpost.declared_feature
(
    environment text NOT NULL,
    feature text NOT NULL,
    CONSTRAINT declared_feature_key PRIMARY KEY (environment, feature)
);
