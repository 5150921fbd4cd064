-- Queues that a stream drains: the owner of the spool, and whether it has logged a batch. One stream per queue.
CREATE TABLE IF NOT EXISTS rowpost.spool
(
    queue_key text NOT NULL,
    owned_by text NOT NULL,
    confirmed boolean NOT NULL,
    taken_at timestamp(3) NOT NULL,
    CONSTRAINT spool_key PRIMARY KEY (queue_key)
);
