-- What operators did: one row per act, or per act on many messages, until the retention time ends. It holds neither bodies nor headers.
CREATE TABLE IF NOT EXISTS rowpost.act
(
    act_id bigint GENERATED ALWAYS AS IDENTITY,
    act_name varchar(50) NOT NULL,
    act_state varchar(20) NOT NULL,
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
    CONSTRAINT act_key PRIMARY KEY (act_id),
    CONSTRAINT act_state_known CHECK (act_state IN ('running', 'done', 'cancelled', 'failed', 'interrupted'))
) WITH (fillfactor = 70);

CREATE INDEX IF NOT EXISTS act_started_at ON rowpost.act (started_at);
