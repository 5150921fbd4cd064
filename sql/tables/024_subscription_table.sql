-- Tables of subscriptions other than dbo.SubscriptionRouting. Events go to the subscribers in all of them.
IF OBJECT_ID(N'rowpost.subscription_table', N'U') IS NULL
    CREATE TABLE rowpost.subscription_table
    (
        table_key nvarchar(128) NOT NULL,
        display_name nvarchar(400) NOT NULL,
        catalog_name sysname NULL,
        schema_name sysname NOT NULL,
        table_name sysname NOT NULL,
        CONSTRAINT subscription_table_pk PRIMARY KEY CLUSTERED (table_key)
    );
GO
