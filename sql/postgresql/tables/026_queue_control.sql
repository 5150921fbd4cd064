-- What operators have set for queues: paused, or how many workers at most. A queue without a row works as its environment says.
CREATE TABLE IF NOT EXISTS rowpost.queue_control
(
    queue_key text NOT NULL,
    is_paused boolean NOT NULL,
    worker_limit integer NULL,
    shared boolean NOT NULL,
    reason varchar(400) NULL,
    changed_by text NOT NULL,
    changed_at timestamp(3) NOT NULL,
    CONSTRAINT queue_control_key PRIMARY KEY (queue_key)
);
