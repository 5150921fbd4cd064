-- Who may run what, on one page. Runs at every deployment; per queue see tables/queue/grants.sql.
-- Functions reach the tables as SECURITY DEFINER with a pinned search_path: nobody but the owner may change one, and a
-- queue's messages are read by operators and readers alone (read_range).
DO $rowpost$
DECLARE
    v_role text;
BEGIN
    -- endpoint: workers and senders; operator: people who look after queues; reader: people and tools that only look
    FOREACH v_role IN ARRAY ARRAY['rowpost_endpoint', 'rowpost_operator', 'rowpost_reader'] LOOP
        IF to_regrole(v_role) IS NULL THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
        END IF;
    END LOOP;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- roles belong to the whole cluster: another database's deployment has just made them
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('The role %s does not exist and you may not create roles.', v_role),
            HINT = 'Let an administrator run: CREATE ROLE rowpost_endpoint; CREATE ROLE rowpost_operator; CREATE ROLE rowpost_reader;';
END
$rowpost$;

GRANT USAGE ON SCHEMA rowpost TO rowpost_endpoint, rowpost_operator, rowpost_reader;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA rowpost FROM PUBLIC;
-- Everybody may ask what is deployed.
GRANT EXECUTE ON FUNCTION rowpost.get_version TO rowpost_endpoint, rowpost_operator, rowpost_reader;
-- The dispatchers run as the caller: they let nobody reach a queue that its own functions would refuse.
GRANT EXECUTE ON FUNCTION rowpost.send_message TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.receive_messages TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost._resolve_queue TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.send_unregistered TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.record_failure TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.forget_failure TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.claim_queue TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.renew_lease TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.subscribe TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.unsubscribe TO rowpost_endpoint, rowpost_operator;
-- A publisher reaches every subscriber: who subscribes agrees to that.
GRANT EXECUTE ON FUNCTION rowpost.publish_message TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.list_subscriptions TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.record_decision TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.forget_decision TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.probe_transaction TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.list_decisions TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.find_handled TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.record_handled TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.store_operations TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.settle_operations TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.list_undispatched TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.clean_outbox TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.elect_cleaner TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.record_dispatch TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.forget_dispatch TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.clean_dispatches TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.claim_ledger TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.settle_ledger TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.complete_ledger TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.stage_messages TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.drop_staged TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.outbox_status TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.list_queues TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.check_queue TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.elect_upkeep TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON FUNCTION rowpost.list_saga_types TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.list_scripts TO rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.list_strangers TO rowpost_operator, rowpost_reader;
GRANT EXECUTE ON FUNCTION rowpost.get_definition TO rowpost_operator, rowpost_reader;
