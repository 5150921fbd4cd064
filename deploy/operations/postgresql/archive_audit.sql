-- Archives the audit queue: the oldest messages go into audit_archive, in batches that commit one by one.
-- PostgreSQL. Set the three values, run it with psql in the queue's database, outside of a transaction; it may be
-- stopped and run again at any time. Receivers of the audit queue are stepped over. The operation log gets a line.
CREATE TABLE IF NOT EXISTS public.audit_archive
(
    archived_at timestamp(3) NOT NULL,
    row_version bigint NOT NULL,
    id uuid NOT NULL,
    headers text NOT NULL,
    body bytea NULL,
    PRIMARY KEY (row_version, id)
);

DO $operation$
DECLARE
    v_batch CONSTANT integer := 1000; -- messages per transaction
    v_at_most CONSTANT integer := 1000000; -- messages in this run
    v_keep CONSTANT integer := 0; -- the newest so many stay
    v_newest bigint;
    v_moved integer := 1;
    v_total integer := 0;
BEGIN
    SELECT min(n.seq) INTO v_newest FROM (SELECT q.seq FROM public.audit AS q ORDER BY q.seq DESC LIMIT v_keep) AS n;

    WHILE v_moved > 0 AND v_total < v_at_most LOOP
        WITH oldest AS (
            SELECT q.seq
            FROM public.audit AS q
            WHERE q.seq < coalesce(v_newest, 9223372036854775807)
            ORDER BY q.seq
            LIMIT v_batch
            FOR UPDATE SKIP LOCKED
        ),
        taken AS (
            DELETE FROM public.audit AS q USING oldest AS o WHERE q.seq = o.seq
            RETURNING q.seq, q.id, q.headers, q.body
        )
        INSERT INTO public.audit_archive (archived_at, row_version, id, headers, body)
        SELECT clock_timestamp() AT TIME ZONE 'UTC', t.seq, t.id, t.headers, t.body FROM taken AS t;

        GET DIAGNOSTICS v_moved = ROW_COUNT;
        v_total := v_total + v_moved;
        COMMIT;
    END LOOP;

    IF v_total > 0 AND EXISTS (SELECT FROM rowpost.queue AS q WHERE q.queue_name = 'audit') THEN
        PERFORM rowpost.record_operation(
            p_operation_name => 'archive', p_client => 'archive_audit.sql', p_queue_name => 'audit', p_done => v_total
        );
    END IF;

    RAISE NOTICE '% messages archived', v_total;
END
$operation$;
