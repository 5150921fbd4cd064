-- Which supervisors receive from a queue. A limit that they share is divided among those that are alive.
CREATE TABLE IF NOT EXISTS rowpost.supervised_queue
(
    queue_key text NOT NULL,
    supervisor_id uuid NOT NULL,
    CONSTRAINT supervised_queue_key PRIMARY KEY (queue_key, supervisor_id)
);

-- A supervisor's own rows, which each of its reports reads.
CREATE INDEX IF NOT EXISTS supervised_queue_supervisor ON rowpost.supervised_queue (supervisor_id);
