-- Tables of subscriptions other than public."SubscriptionRouting". Events go to the subscribers in all of them.
CREATE TABLE IF NOT EXISTS rowpost.subscription_table
(
    table_key text NOT NULL,
    display_name text NOT NULL,
    catalog_name text NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    CONSTRAINT subscription_table_pk PRIMARY KEY (table_key)
);
