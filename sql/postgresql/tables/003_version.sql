-- One row per schema version and release that deployed it.
CREATE TABLE IF NOT EXISTS rowpost.version
(
    schema_version integer NOT NULL,
    tool_version text NOT NULL,
    applied_at timestamp(3) NOT NULL,
    applied_by text NOT NULL,
    CONSTRAINT version_key PRIMARY KEY (schema_version, tool_version)
);
