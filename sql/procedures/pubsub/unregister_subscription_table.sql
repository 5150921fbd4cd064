SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.unregister_subscription_table
    @table_key nvarchar(256)
AS
/*
Removes a table of subscriptions from the registry. Events no longer go to the subscribers in it; its rows stay.
Atomicity: in the caller's transaction.
Locking:   the registry of these tables, until the caller commits; only deployments call it.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE t
FROM rowpost.subscription_table AS t
WHERE t.table_key = @table_key;
GO
