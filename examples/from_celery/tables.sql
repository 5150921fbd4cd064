-- The application's own tables, which would come from its migrations.
CREATE TABLE IF NOT EXISTS placed (order_id bigint NOT NULL PRIMARY KEY);
CREATE TABLE IF NOT EXISTS charged (order_id bigint NOT NULL PRIMARY KEY);
