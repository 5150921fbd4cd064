-- Queues that belong to one process, and the time until which the process has renewed its lease.
CREATE TABLE IF NOT EXISTS rowpost.lease
(
    queue_key text NOT NULL,
    ends_at timestamp(3) NOT NULL,
    CONSTRAINT lease_key PRIMARY KEY (queue_key)
);
