-- A schema of queues, sagas or subscriptions. One that is there already stays as it is. dbo owns a new one, because procedures
-- reach the tables of queues by ownership chaining.
IF SCHEMA_ID(N'{schema_name}') IS NULL
BEGIN
    DECLARE @name nvarchar(258) = QUOTENAME(N'{schema_name}');
    DECLARE @statement nvarchar(2000) = CONCAT(N'CREATE SCHEMA ', @name, N' AUTHORIZATION dbo;');

    IF HAS_PERMS_BY_NAME(QUOTENAME(DB_NAME()), N'DATABASE', N'CREATE SCHEMA') = 0
    BEGIN
        SET @statement = CONCAT(
            N'The schema ', @name, N' does not exist and you may not create schemas. Let an administrator run: ', @statement,
            N' or name a schema that exists.'
        );
        SET @statement = REPLACE(@statement, N'%', N'%%');
        THROW 50000, @statement, 1;
    END;

    EXEC (@statement);
END;
GO
