-- The application's own table, which would come from its migrations.
CREATE TABLE placed (order_id bigint NOT NULL PRIMARY KEY);
