-- Messages that handlers hold without an open transaction: the columns of the queue's table, and who holds them until when. A
-- table that is there already stays as it is.
DO $rowpost$
BEGIN
    IF to_regclass('{leased_table}') IS NULL THEN
        -- The table is small, and its rows are updated by each renewal: room in each page, and no index on what changes.
        CREATE TABLE {leased_table}
        (
            token uuid NOT NULL PRIMARY KEY, -- whoever knows it may end or renew the lease
            id uuid NOT NULL,
            expires timestamp NULL,
            headers text NOT NULL,
            body bytea NULL,
            seq bigint NOT NULL UNIQUE,
            owner text NOT NULL, -- host, process and slot
            leased_at timestamp(3) NOT NULL,
            due timestamp(3) NOT NULL, -- the message returns to its queue after this time, unless the lease is renewed
            progress_percent integer NULL, -- 0 to 100
            progress_text text NULL
        ) WITH (
            fillfactor = 50,
            autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
            autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000, vacuum_truncate = off
        );
    END IF;
END
$rowpost$;
