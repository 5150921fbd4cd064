-- What the files of this folder use of PostgreSQL's catalog, declared for the offline compiler.
CREATE SCHEMA pg_catalog;
GO
CREATE TYPE dbo.json FROM nvarchar(4000);
GO
CREATE FUNCTION pg_catalog.json_object_field_text (@from_json nvarchar(max), @field_name nvarchar(max))
RETURNS nvarchar(max)
AS
BEGIN
    RETURN @from_json;
END;
GO
CREATE TABLE pg_catalog.pg_locks
(
    locktype nvarchar(60) NULL,
    relation int NULL,
    virtualtransaction nvarchar(60) NULL,
    pid int NULL,
    mode nvarchar(60) NULL
);
GO
CREATE TABLE pg_catalog.pg_stat_activity
(
    pid int NULL,
    application_name nvarchar(60) NULL,
    xact_start datetime2(6) NULL
);
GO
CREATE FUNCTION pg_catalog.pg_get_serial_sequence (@table_name nvarchar(400), @column_name nvarchar(128))
RETURNS nvarchar(400)
AS
BEGIN
    RETURN @table_name;
END;
GO
CREATE FUNCTION pg_catalog.pg_sequence_last_value (@sequence nvarchar(400))
RETURNS bigint
AS
BEGIN
    RETURN 0;
END;
GO
CREATE FUNCTION pg_catalog.pg_advisory_xact_lock (@key bigint)
RETURNS nvarchar(10)
AS
BEGIN
    RETURN N'';
END;
GO
