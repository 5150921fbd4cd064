-- The roles of the cluster, and what they may execute in this database. Runs at every deployment of an environment with
-- `roles: cluster`. The rights on each queue and saga: tables/queue/roles.sql and tables/saga/roles.sql. Only
-- rowpost_operator and rowpost_body_reader may read a table, a queue's five columns that read_range returns.
DO $rowpost$
DECLARE
    v_role text;
BEGIN
    -- endpoint: workers and senders; operator: people who operate the queues; reader: people and tools that only read, and see
    -- no body; body_reader: those that also read bodies and states of sagas
    FOREACH v_role IN ARRAY ARRAY['rowpost_endpoint', 'rowpost_operator', 'rowpost_reader', 'rowpost_body_reader'] LOOP
        IF to_regrole(v_role) IS NULL THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        END IF;
    END LOOP;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- roles belong to the whole cluster: the deployment of another database created them meanwhile
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('The role %s does not exist and you may not create roles.', v_role),
            HINT = 'Let an administrator run: CREATE ROLE rowpost_endpoint; CREATE ROLE rowpost_operator; CREATE ROLE rowpost_reader; '
                'CREATE ROLE rowpost_body_reader; or write `roles: none` into the environment''s file, and only your login works with the queues';
END
$rowpost$;

GRANT USAGE ON SCHEMA rowpost TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
-- The dispatchers send_message and receive_messages run as the caller, so that they give access to no queue whose own
-- functions refuse the caller. Therefore the caller needs the right to execute their helper too.
GRANT EXECUTE ON FUNCTION rowpost._resolve_queue TO rowpost_endpoint, rowpost_operator;
-- Rendered from the roles in contract.yml. publish_message stores an event in the queue of every subscriber: to
-- subscribe is to agree to that.
{procedure_grants}
