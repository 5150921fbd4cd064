-- Who may run what, on one page. Runs at every deployment; per queue see tables/queue/grants.sql.
-- Nobody but the owner has any right on a table: procedures reach them through ownership chaining.
IF DATABASE_PRINCIPAL_ID(N'rowpost_endpoint') IS NULL CREATE ROLE rowpost_endpoint; -- workers and senders
IF DATABASE_PRINCIPAL_ID(N'rowpost_operator') IS NULL CREATE ROLE rowpost_operator; -- people who look after queues
IF DATABASE_PRINCIPAL_ID(N'rowpost_reader') IS NULL CREATE ROLE rowpost_reader; -- people and tools that only look
GO
-- The catalog shows nobody more than he has a right to, inside procedures too: without this right check_queue,
-- list_queues, list_scripts and list_strangers would find nothing there.
GRANT VIEW DEFINITION ON SCHEMA::rowpost TO rowpost_endpoint, rowpost_operator, rowpost_reader;
-- Everybody may ask what is deployed.
GRANT EXECUTE ON rowpost.get_version TO rowpost_endpoint, rowpost_operator, rowpost_reader;
-- The dispatchers run as the caller: they let nobody reach a queue that its own procedures would refuse.
GRANT EXECUTE ON rowpost.send_message TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.receive_messages TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.send_unregistered TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.record_failure TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.forget_failure TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.claim_queue TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.renew_lease TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.subscribe TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.unsubscribe TO rowpost_endpoint, rowpost_operator;
-- A publisher reaches every subscriber: who subscribes agrees to that.
GRANT EXECUTE ON rowpost.publish_message TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.list_subscriptions TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.record_decision TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.forget_decision TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.probe_transaction TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.list_decisions TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.find_handled TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.record_handled TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.store_operations TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.settle_operations TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.list_undispatched TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.clean_outbox TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.elect_cleaner TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.record_dispatch TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.forget_dispatch TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.clean_dispatches TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.claim_ledger TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.settle_ledger TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.complete_ledger TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.stage_messages TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.drop_staged TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.outbox_status TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.list_queues TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.check_queue TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.elect_upkeep TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.list_saga_types TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.list_scripts TO rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.list_strangers TO rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost.get_definition TO rowpost_operator, rowpost_reader;
GO
