-- Which messages an endpoint has handled, in the database of its business data: one small row per message for as long as
-- a duplicate may come. What a message caused stands apart until it has left, so that rows here are never rewritten.
CREATE TABLE IF NOT EXISTS rowpost.outbox
(
    endpoint text NOT NULL,
    message_id text NOT NULL,
    handled_at timestamp(3) NOT NULL,
    CONSTRAINT outbox_key PRIMARY KEY (endpoint, message_id)
);

CREATE INDEX IF NOT EXISTS outbox_handled_at ON rowpost.outbox (handled_at);
