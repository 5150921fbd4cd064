-- The last row version that was purged from a queue, so that a stream that has not read so far reports the purge.
CREATE TABLE IF NOT EXISTS rowpost.purge
(
    queue_key text NOT NULL,
    row_version bigint NOT NULL,
    purged_at timestamp(3) NOT NULL,
    CONSTRAINT purge_key PRIMARY KEY (queue_key)
);
