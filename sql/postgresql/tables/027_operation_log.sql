-- What operators did: one row per operation, or per bulk operation, until the retention time ends. It holds neither bodies nor headers.
CREATE TABLE IF NOT EXISTS rowpost.operation_log
(
    operation_id bigint GENERATED ALWAYS AS IDENTITY,
    operation_name varchar(50) NOT NULL,
    operation_state varchar(20) NOT NULL,
    client varchar(50) NOT NULL,
    login_name text NOT NULL,
    user_name varchar(200) NULL,
    queue_name varchar(400) NULL,
    message_id varchar(200) NULL,
    details varchar(4000) NULL,
    reason varchar(400) NULL,
    outcome varchar(1000) NULL,
    started_at timestamp(3) NOT NULL,
    changed_at timestamp(3) NOT NULL,
    ended_at timestamp(3) NULL,
    total_count bigint NULL,
    done_count bigint NOT NULL,
    gone_count bigint NOT NULL,
    refused_count bigint NOT NULL,
    reached bigint NULL,
    up_to bigint NULL,
    executor uuid NULL,
    cancelled_by varchar(400) NULL,
    CONSTRAINT operation_log_key PRIMARY KEY (operation_id),
    CONSTRAINT operation_log_state_known CHECK (operation_state IN ('running', 'done', 'cancelled', 'failed', 'interrupted'))
) WITH (fillfactor = 70);

CREATE INDEX IF NOT EXISTS operation_log_started_at ON rowpost.operation_log (started_at);
