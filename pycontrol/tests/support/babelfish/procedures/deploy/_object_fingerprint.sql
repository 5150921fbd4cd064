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
Babelfish: CONVERT with style 2 writes no hexadecimal digits there; they are spelt one by one. One reading of
sys.columns takes a tenth of a second: a table's columns are read at once.
*/
BEGIN
    DECLARE @object_id int = OBJECT_ID(@object_name);
    DECLARE @fingerprint nvarchar(max);

    IF @object_kind = 'procedure'
    BEGIN
        DECLARE @digits nvarchar(16) = N'0123456789abcdef';
        DECLARE @hash varbinary(32);
        DECLARE @byte int = 0;

        SELECT @hash = HASHBYTES('SHA2_256', m.[definition])
        FROM sys.sql_modules AS m
        WHERE m.object_id = @object_id;

        WHILE @byte < DATALENGTH(@hash)
        BEGIN
            SET @byte = @byte + 1;
            SET @fingerprint = CONCAT(
                @fingerprint,
                SUBSTRING(@digits, CAST(SUBSTRING(@hash, @byte, 1) AS int) / 16 + 1, 1),
                SUBSTRING(@digits, CAST(SUBSTRING(@hash, @byte, 1) AS int) % 16 + 1, 1)
            );
        END;
    END;

    IF @object_kind = 'table'
        SELECT @fingerprint = STRING_AGG(
            CONCAT(
                c.name, N' ', TYPE_NAME(c.user_type_id), N'(', c.max_length, N',', c.[precision], N',', c.scale, N')',
                CASE WHEN c.is_nullable = 1 THEN N' null' ELSE N' not null' END,
                CASE WHEN c.is_identity = 1 THEN N' identity' ELSE N'' END,
                CASE WHEN c.is_computed = 1 THEN N' computed' ELSE N'' END
            ),
            NCHAR(10)
        ) WITHIN GROUP (ORDER BY c.column_id)
        FROM sys.columns AS c
        WHERE c.object_id = @object_id;

    IF @object_kind = 'schema' AND SCHEMA_ID(PARSENAME(@object_name, 1)) IS NOT NULL
        SET @fingerprint = N'schema';

    RETURN @fingerprint;
END;
GO
