-- Who may run what, on one page. Runs at every deployment; per queue see tables/queue/grants.sql.
-- Babelfish: without VIEW DEFINITION, which it has not; its catalog is open to all. It chains no ownership either: who
-- may call a procedure needs rights on what it touches as well, so that roles do have rights on tables here.
IF DATABASE_PRINCIPAL_ID(N'rowpost_endpoint') IS NULL CREATE ROLE rowpost_endpoint; -- workers and senders
IF DATABASE_PRINCIPAL_ID(N'rowpost_operator') IS NULL CREATE ROLE rowpost_operator; -- people who look after queues
IF DATABASE_PRINCIPAL_ID(N'rowpost_reader') IS NULL CREATE ROLE rowpost_reader; -- people and tools that only look
GO
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
GRANT EXECUTE ON rowpost._resolve_queue TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost._object_fingerprint TO rowpost_operator, rowpost_reader;
GRANT EXECUTE ON rowpost._describe_bloat TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT SELECT ON rowpost.journal TO rowpost_operator, rowpost_reader;
GRANT SELECT ON rowpost.version TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT SELECT ON rowpost.queue TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT SELECT ON rowpost.saga TO rowpost_endpoint, rowpost_operator, rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.failure TO rowpost_endpoint, rowpost_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.decision TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.decision TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.lease TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.lease TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.outbox TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.outbox TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.outbox_operations TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.outbox_operations TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.dispatch TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.dispatch TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.purge TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.purge TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.spool TO rowpost_operator;
GRANT SELECT ON rowpost.spool TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.spooled_message TO rowpost_operator;
GRANT SELECT ON rowpost.spooled_message TO rowpost_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.ledger TO rowpost_endpoint, rowpost_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.staged_message TO rowpost_endpoint, rowpost_operator;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.SubscriptionRouting TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON dbo.SubscriptionRouting TO rowpost_reader;
GO
