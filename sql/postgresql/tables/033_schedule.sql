-- The schedules: when each is due, and up to when its ticks are done. Whoever moves ticked_to on sends the message of the tick, in one transaction.
CREATE TABLE IF NOT EXISTS rowpost.schedule
(
    schedule_name varchar(150) NOT NULL,
    queue_key text NOT NULL,
    destination varchar(200) NOT NULL,
    message_type varchar(200) NOT NULL,
    cron varchar(200) NULL,
    interval_ms bigint NULL,
    zone varchar(100) NOT NULL,
    missed varchar(10) NOT NULL,
    ticked_to timestamp(3) NOT NULL,
    next_due timestamp(3) NULL,
    sent_due timestamp(3) NULL,
    requested_at timestamp(3) NULL,
    is_paused boolean NOT NULL,
    reason varchar(400) NULL,
    changed_by text NOT NULL,
    changed_at timestamp(3) NOT NULL,
    CONSTRAINT schedule_key PRIMARY KEY (schedule_name)
) WITH (fillfactor = 50);
