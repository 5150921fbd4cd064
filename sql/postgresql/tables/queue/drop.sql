-- Drops the queue's table with every message in it. Run after forget.sql.
DROP TABLE IF EXISTS {queue_table};
