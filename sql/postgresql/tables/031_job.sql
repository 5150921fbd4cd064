-- Jobs that write to queues: one row per job key, with its latest run. The state is running, sending (all tasks have stored
-- their messages, and the parts in job_part are sent), done or failed. The job belongs to the login that began it.
CREATE TABLE IF NOT EXISTS rowpost.job
(
    job_key text NOT NULL,
    destination text NOT NULL,
    run text NOT NULL,
    sending_mode text NOT NULL,
    state text NOT NULL,
    started_by text NULL,
    parts bigint NULL,
    messages bigint NULL,
    digest text NULL,
    started_at timestamp(3) NOT NULL,
    changed_at timestamp(3) NOT NULL,
    owner_login name NOT NULL DEFAULT session_user,
    CONSTRAINT job_pk PRIMARY KEY (job_key)
);

-- CREATE OR REPLACE FUNCTION cannot add a parameter: drop the function that did not know runs.
DROP FUNCTION IF EXISTS rowpost.drop_staged(text, integer);
