SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.register_subscription_table
    @table_key nvarchar(128),
    @display_name nvarchar(400), -- its address in the short form
    @catalog_name sysname = NULL, -- NULL: this database
    @schema_name sysname,
    @table_name sysname
AS
/*
Registers a table of subscriptions; does nothing if it is registered.
Atomicity: in the caller's transaction.
Locking:   the registry of these tables, until the caller commits; only deployments call it.
*/
SET NOCOUNT, XACT_ABORT ON;

IF NOT EXISTS (SELECT 1 FROM rowpost.subscription_table AS t WITH (UPDLOCK, HOLDLOCK) WHERE t.table_key = @table_key)
    INSERT INTO rowpost.subscription_table (table_key, display_name, catalog_name, schema_name, table_name)
    VALUES (@table_key, @display_name, @catalog_name, @schema_name, @table_name);
GO
