-- The shop's own table. No unique key on purpose: a message handled twice would show as a second row.
DROP TABLE IF EXISTS demo_order;
CREATE TABLE demo_order
(
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_row uuid NOT NULL,
    message_type text NOT NULL,
    order_number bigint NOT NULL,
    amount numeric(12, 2) NULL,
    worker integer NOT NULL
);
