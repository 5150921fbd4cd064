CREATE OR REPLACE FUNCTION rowpost.report_supervisor(
    p_supervisor_id uuid,
    p_host_name text,
    p_process_id integer,
    p_environment text,
    p_rowpost_version text, -- of rowpost in the supervisor
    p_queues text, -- JSON array of the names of the queues that it receives from, up to 250000 characters
    p_workers text, -- JSON array of its workers, up to 100000 characters
    p_ended boolean DEFAULT NULL -- true: it has ended and is listed no more; null as false
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Records that a supervisor is alive, and what its workers do. One row is written; queues are written only if they have changed.
Atomicity: in the caller's transaction.
Locking:   its own rows of rowpost.supervisor, then those of rowpost.supervised_queue; when it starts, those of the deleted in the same order.
A supervisor is recorded for those queues only from which its login may receive. A row that another login wrote stays as it is. Supervisors
that have been silent for a day are deleted when the next one starts.
Rights:    a new supervisor needs an operator, or a login that may receive from a queue. Of a login the 1000 supervisors that reported last are kept.
*/
DECLARE
    v_now CONSTANT timestamp := clock_timestamp() AT TIME ZONE 'UTC';
    v_valid boolean;
BEGIN
    IF p_ended THEN
        DELETE FROM rowpost.supervisor AS s WHERE s.supervisor_id = p_supervisor_id AND s.login_name = session_user;

        IF FOUND THEN
            DELETE FROM rowpost.supervised_queue AS q WHERE q.supervisor_id = p_supervisor_id;
        END IF;

        RETURN;
    END IF;

    BEGIN
        v_valid := length(p_queues) <= 250000 AND length(p_workers) <= 100000 -- characters; readers load many reports
            AND NOT EXISTS (SELECT FROM json_array_elements(p_queues::json) AS j (value) WHERE json_typeof(j.value) <> 'string')
            AND NOT EXISTS (
                SELECT
                FROM json_array_elements(p_workers::json) AS w (value)
                WHERE coalesce(json_typeof(w.value -> 'queue'), '') <> 'string'
                   OR coalesce(json_typeof(w.value -> 'state'), '') <> 'string'
                   OR coalesce(json_typeof(w.value -> 'process_id'), '') <> 'number'
                   OR coalesce(json_typeof(w.value -> 'seconds'), '') <> 'number'
                   OR coalesce(json_typeof(w.value -> 'message'), 'null') NOT IN ('string', 'null')
                   OR coalesce(json_typeof(w.value -> 'message_seconds'), 'null') NOT IN ('number', 'null')
            );
    EXCEPTION
        WHEN data_exception OR statement_too_complex THEN
            v_valid := false; -- no JSON, no array, or nested too deeply
    END;

    IF v_valid IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'RP033', MESSAGE =
            'A supervisor''s report must have a JSON array of queue names and one of workers, with up to 250000 and 100000 characters.';
    END IF;

    UPDATE rowpost.supervisor AS s
    SET seen_at = v_now, queues = p_queues, workers = p_workers
    WHERE s.supervisor_id = p_supervisor_id AND s.login_name = session_user;

    IF NOT FOUND THEN
        IF NOT EXISTS (SELECT FROM rowpost.queue AS r WHERE rowpost._may_receive(r.queue_key)) AND NOT rowpost._is_operator() THEN
            RAISE EXCEPTION USING ERRCODE = 'RP024', MESSAGE = format(
                'The login %s may not report a supervisor: it may not receive from any queue and is no operator.'
                ' rowpost queue grant prints the statement that grants the right.',
                session_user);
        END IF;

        INSERT INTO rowpost.supervisor AS s
            (supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers)
        VALUES (
            p_supervisor_id, left(p_host_name, 200), p_process_id, left(p_environment, 200), left(p_rowpost_version, 50), session_user, v_now, v_now,
            p_queues, p_workers
        )
        ON CONFLICT (supervisor_id) DO NOTHING;

        IF NOT FOUND THEN
            RETURN;
        END IF;

        WITH silent AS (
            DELETE FROM rowpost.supervisor AS s WHERE s.seen_at < v_now - interval '1 day' RETURNING s.supervisor_id
        )
        DELETE FROM rowpost.supervised_queue AS q
        USING silent AS p
        WHERE p.supervisor_id = q.supervisor_id;

        WITH surplus AS (
            DELETE FROM rowpost.supervisor AS s
            WHERE s.supervisor_id IN (
                SELECT o.supervisor_id
                FROM rowpost.supervisor AS o
                WHERE o.login_name = session_user
                ORDER BY o.seen_at DESC, o.supervisor_id ASC
                OFFSET 1000
            )
            RETURNING s.supervisor_id
        )
        DELETE FROM rowpost.supervised_queue AS q
        USING surplus AS p
        WHERE p.supervisor_id = q.supervisor_id;
    END IF;

    DELETE FROM rowpost.supervised_queue AS q
    WHERE q.supervisor_id = p_supervisor_id
      AND NOT EXISTS (
        SELECT
        FROM json_array_elements_text(p_queues::json) AS j (value)
        JOIN rowpost.queue AS r ON r.queue_name = j.value
        WHERE r.queue_key = q.queue_key
    );

    INSERT INTO rowpost.supervised_queue AS q (queue_key, supervisor_id)
    SELECT r.queue_key, p_supervisor_id
    FROM json_array_elements_text(p_queues::json) AS j (value)
    JOIN rowpost.queue AS r ON r.queue_name = j.value
    WHERE NOT EXISTS (SELECT FROM rowpost.supervised_queue AS q WHERE q.queue_key = r.queue_key AND q.supervisor_id = p_supervisor_id)
      AND rowpost._may_receive(r.queue_key)
    ON CONFLICT (queue_key, supervisor_id) DO NOTHING;
END
$rowpost$;
