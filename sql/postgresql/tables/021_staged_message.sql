-- Messages of a job that becomes visible as a whole: stored by its tasks, sent by its end. `attempt` tells a task's tries apart.
CREATE TABLE IF NOT EXISTS rowpost.staged_message
(
    job_key text NOT NULL,
    attempt text NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    id uuid NULL,
    headers text NOT NULL,
    body bytea NULL,
    staged_at timestamp(3) NOT NULL,
    CONSTRAINT staged_message_key PRIMARY KEY (job_key, attempt, number)
)
WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, vacuum_truncate = off
);
