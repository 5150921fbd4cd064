-- The parts of jobs that were sent: one row per part, committed together with the part's messages. If a part is sent
-- again, by a retry or by the whole job with the same key, it is found here and skipped. The job belongs to the login that sends it.
CREATE TABLE IF NOT EXISTS rowpost.ledger
(
    job_key text NOT NULL,
    part bigint NOT NULL,
    parts bigint NULL,
    messages bigint NULL,
    digest text NULL,
    claimed_at timestamp(3) NOT NULL,
    owner_login name NOT NULL DEFAULT session_user,
    CONSTRAINT ledger_key PRIMARY KEY (job_key, part)
);
