-- In the queue's database: the messages whose operations were sent from an outbox. A row commits together with the sent
-- messages and is deleted after the outbox has deleted the operations, so that a crash in between sends nothing twice.
CREATE TABLE IF NOT EXISTS rowpost.dispatch
(
    endpoint text NOT NULL,
    message_id text NOT NULL,
    dispatched_at timestamp(3) NOT NULL,
    CONSTRAINT dispatch_key PRIMARY KEY (endpoint, message_id)
)
WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, vacuum_truncate = off
);

CREATE INDEX IF NOT EXISTS dispatch_dispatched_at ON rowpost.dispatch (dispatched_at);
