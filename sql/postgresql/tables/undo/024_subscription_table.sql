-- Takes 024_subscription_table.sql back. The tables of subscriptions themselves stay, with their rows.
DROP TABLE IF EXISTS rowpost.subscription_table;
