-- The types of sagas that have procedures, with the table of their instances and the correlation property.
IF OBJECT_ID(N'rowpost.saga', N'U') IS NULL
    CREATE TABLE rowpost.saga
    (
        saga_key nvarchar(128) NOT NULL,
        saga_name nvarchar(400) NOT NULL,
        schema_name sysname NOT NULL,
        table_name sysname NOT NULL,
        correlation_name sysname NOT NULL,
        correlation_type varchar(10) NOT NULL,
        transitional_name sysname NULL,
        transitional_type varchar(10) NULL,
        CONSTRAINT saga_pk PRIMARY KEY CLUSTERED (saga_key),
        CONSTRAINT saga_name_key UNIQUE (saga_name)
    );
GO
