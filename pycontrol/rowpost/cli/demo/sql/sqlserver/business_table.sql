-- The shop's own table. No unique key on purpose: a message handled twice would show as a second row.
DROP TABLE IF EXISTS demo_order;
CREATE TABLE demo_order
(
    id bigint IDENTITY (1, 1) NOT NULL PRIMARY KEY,
    message_row uniqueidentifier NOT NULL,
    message_type nvarchar(200) NOT NULL,
    order_number bigint NOT NULL,
    amount decimal(12, 2) NULL,
    worker int NOT NULL
);
