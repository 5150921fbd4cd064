-- How far queues were emptied on purpose: a stream that has not read so far yet is told, and does not take it for nothing.
CREATE TABLE IF NOT EXISTS rowpost.purge
(
    queue_key text NOT NULL,
    row_version bigint NOT NULL,
    purged_at timestamp(3) NOT NULL,
    CONSTRAINT purge_key PRIMARY KEY (queue_key)
);
