-- What the files below sql/babelfish use of PostgreSQL's catalog, declared for the offline compiler.
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
