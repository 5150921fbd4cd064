-- The operations of handled messages that are not sent yet, as JSON, between the commit of the business data and the
-- commit of the queue. Usually empty: vacuum after a number of dead rows, at full speed.
CREATE TABLE IF NOT EXISTS rowpost.outbox_operations
(
    endpoint text NOT NULL,
    message_id text NOT NULL,
    operations text NOT NULL,
    CONSTRAINT outbox_operations_key PRIMARY KEY (endpoint, message_id)
)
WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, vacuum_truncate = off
);
