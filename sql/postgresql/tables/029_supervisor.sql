-- The supervisors of all hosts, with their workers as they last reported them.
CREATE TABLE IF NOT EXISTS rowpost.supervisor
(
    supervisor_id uuid NOT NULL,
    host_name varchar(200) NOT NULL,
    process_id integer NOT NULL,
    environment varchar(200) NOT NULL,
    rowpost_version varchar(50) NOT NULL,
    login_name text NOT NULL,
    started_at timestamp(3) NOT NULL,
    seen_at timestamp(3) NOT NULL,
    queues text NOT NULL,
    workers text NOT NULL,
    CONSTRAINT supervisor_key PRIMARY KEY (supervisor_id)
) WITH (fillfactor = 50);
