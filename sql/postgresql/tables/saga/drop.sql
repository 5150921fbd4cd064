-- Drops the saga's table with every instance in it. Run after forget.sql.
DROP TABLE IF EXISTS {saga_table};
