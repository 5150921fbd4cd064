SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER FUNCTION rowpost._object_fingerprint(
    @object_kind varchar(10), -- schema, table or procedure
    @object_name nvarchar(520) -- quoted, with its schema
)
RETURNS nvarchar(max)
AS
/*
Returns the fingerprint of an object: the SHA-256 of a procedure's definition, or a table's columns, one a line.
A schema has only a name. NULL if the object does not exist.
*/
BEGIN
    DECLARE @object_id int = OBJECT_ID(@object_name);
    DECLARE @fingerprint nvarchar(max);

    IF @object_kind = 'procedure'
        SELECT @fingerprint = LOWER(CONVERT(nvarchar(64), HASHBYTES('SHA2_256', m.[definition]), 2))
        FROM sys.sql_modules AS m
        WHERE m.object_id = @object_id;

    IF @object_kind = 'table'
    BEGIN
        DECLARE @column_id int = 0;
        DECLARE @column nvarchar(1000) = N'';

        WHILE @column IS NOT NULL
        BEGIN
            SET @column = NULL;

            SELECT TOP (1)
                @column_id = c.column_id,
                @column = CONCAT(
                    c.name, N' ', TYPE_NAME(c.user_type_id), N'(', c.max_length, N',', c.[precision], N',', c.scale, N')',
                    CASE WHEN c.is_nullable = 1 THEN N' null' ELSE N' not null' END,
                    CASE WHEN c.is_identity = 1 THEN N' identity' ELSE N'' END,
                    CASE WHEN c.is_computed = 1 THEN N' computed' ELSE N'' END
                )
            FROM sys.columns AS c
            WHERE c.object_id = @object_id
              AND c.column_id > @column_id
            ORDER BY c.column_id;

            IF @column IS NOT NULL
                SET @fingerprint = CONCAT(@fingerprint + NCHAR(10), @column);
        END;
    END;

    IF @object_kind = 'schema' AND SCHEMA_ID(PARSENAME(@object_name, 1)) IS NOT NULL
        SET @fingerprint = N'schema';

    RETURN @fingerprint;
END;
GO
