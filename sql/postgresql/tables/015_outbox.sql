-- The messages that an endpoint has handled, in the database of its business data: one small row per message until the
-- retention time ends. A message's operations are in another table until they are sent, so that these rows never change.
CREATE TABLE IF NOT EXISTS rowpost.outbox
(
    endpoint text NOT NULL,
    message_id text NOT NULL,
    handled_at timestamp(3) NOT NULL,
    CONSTRAINT outbox_key PRIMARY KEY (endpoint, message_id)
);

CREATE INDEX IF NOT EXISTS outbox_handled_at ON rowpost.outbox (handled_at);
