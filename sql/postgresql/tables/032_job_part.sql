-- The parts of jobs that are being sent: which attempt of each task counts, and what it stored. They are deleted when the job is done.
CREATE TABLE IF NOT EXISTS rowpost.job_part
(
    job_key text NOT NULL,
    part bigint NOT NULL,
    attempt text NOT NULL,
    messages bigint NOT NULL,
    digest text NOT NULL,
    CONSTRAINT job_part_pk PRIMARY KEY (job_key, part)
);
