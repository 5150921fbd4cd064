-- Messages of a job that sends all its messages at its end. Its tasks store them here. `attempt` identifies an attempt of a task.
-- They belong to the login that stored them.
CREATE TABLE IF NOT EXISTS rowpost.staged_message
(
    job_key text NOT NULL,
    attempt text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    id uuid NULL,
    headers text NOT NULL,
    body bytea NULL,
    staged_at timestamp(3) NOT NULL,
    owner_login name NOT NULL DEFAULT session_user,
    CONSTRAINT staged_message_key PRIMARY KEY (job_key, attempt, number)
)
WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, vacuum_truncate = off
);
