-- Messages that a stream has moved from a queue and has not stored durably yet. `number` is the stream's offset.
CREATE TABLE IF NOT EXISTS rowpost.spooled_message
(
    queue_key text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    id uuid NOT NULL,
    correlation_id text NULL,
    reply_to_address text NULL,
    recoverable boolean NOT NULL,
    expires timestamp NULL,
    headers text NOT NULL,
    body bytea NULL,
    row_version bigint NOT NULL,
    CONSTRAINT spooled_message_key PRIMARY KEY (queue_key, number)
)
WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, vacuum_truncate = off
);
