-- Queues that belong to one process, and the time until which the process has said that it owns the queue.
CREATE TABLE IF NOT EXISTS rowpost.queue_ownership
(
    queue_key text NOT NULL,
    ends_at timestamp(3) NOT NULL,
    CONSTRAINT queue_ownership_pk PRIMARY KEY (queue_key)
);
