-- dbo owns the schema, whoever deploys. Procedures reach the tables of queues by ownership chaining, which needs one owner
-- for both, and dbo owns the tables in its own schema.
IF SCHEMA_ID(N'rowpost') IS NULL
    EXEC (N'CREATE SCHEMA rowpost AUTHORIZATION dbo;');
GO
