-- Drops the queue's tables with every message in them. Run after forget.sql.
DROP TABLE IF EXISTS {queue_table};
DROP TABLE IF EXISTS {delayed_table};
DROP TABLE IF EXISTS {leased_table};
