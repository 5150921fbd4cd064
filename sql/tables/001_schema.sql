-- dbo owns the schema, whoever deploys. Procedures reach the tables of queues by ownership chaining, which needs one owner
-- for both, and dbo owns the tables in its own schema.
IF SCHEMA_ID(N'rowpost') IS NULL
    EXEC (N'CREATE SCHEMA rowpost AUTHORIZATION dbo;');
GO
-- Procedures that need more rights than their callers have run as this user, and not as the owner of the database: its
-- login may be unknown to the server, as after a restore. Nobody can log in as this user. Its rights: grants.sql.
IF DATABASE_PRINCIPAL_ID(N'rowpost_internal') IS NULL CREATE USER rowpost_internal WITHOUT LOGIN;
GO
