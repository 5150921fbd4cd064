SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.list_subscription_tables
AS
/*
Lists the tables of subscriptions other than the default one.
Atomicity: reads only.
Locking:   none that lasts.
Order:     by key.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT t.table_key, t.display_name, t.catalog_name, t.schema_name, t.table_name
FROM rowpost.subscription_table AS t
ORDER BY t.table_key;
GO
