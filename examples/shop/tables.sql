-- The shop's own data. Handlers change it in the transaction of the message.
CREATE SCHEMA IF NOT EXISTS shop;

CREATE TABLE IF NOT EXISTS shop.orders
(
    order_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    card text NOT NULL,
    amount bigint NOT NULL CHECK (amount > 0)
);

CREATE TABLE IF NOT EXISTS shop.payments
(
    order_id bigint NOT NULL PRIMARY KEY REFERENCES shop.orders,
    amount bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS shop.shipments
(
    order_id bigint NOT NULL PRIMARY KEY REFERENCES shop.orders,
    shipped_at timestamptz NULL
);

CREATE TABLE IF NOT EXISTS shop.reminders (order_id bigint NOT NULL PRIMARY KEY REFERENCES shop.orders);

CREATE TABLE IF NOT EXISTS shop.blocked_cards (card text NOT NULL PRIMARY KEY);

INSERT INTO shop.blocked_cards (card) VALUES ('4000-0000') ON CONFLICT DO NOTHING;
