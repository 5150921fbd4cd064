-- Failed attempts per message, shared by all workers. Only a failure writes to this table.
CREATE TABLE IF NOT EXISTS rowpost.failure
(
    queue_key text NOT NULL,
    id uuid NOT NULL,
    attempts integer NOT NULL,
    failed_at timestamp(3) NOT NULL,
    CONSTRAINT failure_key PRIMARY KEY (queue_key, id)
);

CREATE INDEX IF NOT EXISTS failure_failed_at ON rowpost.failure (failed_at);
