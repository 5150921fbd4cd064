-- Queues that belong to one process, and until when that process is believed to live.
CREATE TABLE IF NOT EXISTS rowpost.lease
(
    queue_key text NOT NULL,
    ends_at timestamp(3) NOT NULL,
    CONSTRAINT lease_key PRIMARY KEY (queue_key)
);
