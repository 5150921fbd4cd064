SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.register_subscription_table
    @table_key nvarchar(256),
    @display_name nvarchar(800), -- its address in the short form
    @catalog_name nvarchar(256) = NULL, -- NULL: this database
    @schema_name nvarchar(256),
    @table_name nvarchar(256)
AS
/*
Registers a table of subscriptions; does nothing if it is registered.
Atomicity: in the caller's transaction.
Locking:   the registry of these tables, until the caller commits; only deployments call it.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@table_key, N'.')) > 129 OR LEN(CONCAT(@display_name, N'.')) > 401
   OR LEN(CONCAT(@catalog_name, N'.')) > 129 OR LEN(CONCAT(@schema_name, N'.')) > 129
   OR LEN(CONCAT(@table_name, N'.')) > 129
    THROW 51011, N'The table cannot be registered: its name may have at most 400 characters, its key, schema, table and catalog 128 each.', 1;

IF NOT EXISTS (SELECT 1 FROM rowpost.subscription_table AS t WITH (UPDLOCK, HOLDLOCK) WHERE t.table_key = @table_key)
    INSERT INTO rowpost.subscription_table (table_key, display_name, catalog_name, schema_name, table_name)
    VALUES (@table_key, @display_name, @catalog_name, @schema_name, @table_name);
GO
