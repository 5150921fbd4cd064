-- What jobs have written into queues: a row for each part of a job, committed together with the part's messages, so that
-- a part which is written again, by a retry or by the whole job under the same key, is found here and left out.
CREATE TABLE IF NOT EXISTS rowpost.ledger
(
    job_key text NOT NULL,
    part bigint NOT NULL,
    parts bigint NULL,
    messages bigint NULL,
    digest text NULL,
    claimed_at timestamp(3) NOT NULL,
    CONSTRAINT ledger_key PRIMARY KEY (job_key, part)
);
