-- Babelfish chains no ownership: the callers of procedures need rights on the helpers and tables that these use.
GRANT EXECUTE ON rowpost._resolve_queue TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT EXECUTE ON rowpost._is_operator TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT EXECUTE ON rowpost._may_receive TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT EXECUTE ON rowpost._has_table TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost._queue_at TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost._require_receiver TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost._require_subscriber TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost._write_subscriptions TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost.[_write_subscription:SubscriptionRouting] TO rowpost_endpoint, rowpost_operator;
GRANT EXECUTE ON rowpost._read_other_subscriptions TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT EXECUTE ON rowpost._object_fingerprint TO rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT EXECUTE ON rowpost._describe_bloat TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT SELECT ON rowpost.journal TO rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT SELECT ON rowpost.declared_feature TO rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT SELECT ON rowpost.version TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT SELECT ON rowpost.queue TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
IF OBJECT_ID(N'rowpost.saga', N'U') IS NOT NULL GRANT SELECT ON rowpost.saga TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT SELECT ON rowpost.subscription_table TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.failure TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.failure TO rowpost_reader, rowpost_body_reader;
IF OBJECT_ID(N'rowpost.decision', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.decision TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.decision', N'U') IS NOT NULL GRANT SELECT ON rowpost.decision TO rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.queue_ownership TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.queue_ownership TO rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.queue_control TO rowpost_operator;
GRANT SELECT ON rowpost.queue_control TO rowpost_endpoint, rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.operation_log TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.operation_log TO rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.supervisor TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.supervisor TO rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.supervised_queue TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.outbox', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.outbox TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.outbox', N'U') IS NOT NULL GRANT SELECT ON rowpost.outbox TO rowpost_reader, rowpost_body_reader;
IF OBJECT_ID(N'rowpost.outbox_operations', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.outbox_operations TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.outbox_operations', N'U') IS NOT NULL GRANT SELECT ON rowpost.outbox_operations TO rowpost_reader, rowpost_body_reader;
IF OBJECT_ID(N'rowpost.dispatch', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.dispatch TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.dispatch', N'U') IS NOT NULL GRANT SELECT ON rowpost.dispatch TO rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.purge TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON rowpost.purge TO rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.taken_subscription TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.spool', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.spool TO rowpost_operator;
IF OBJECT_ID(N'rowpost.spool', N'U') IS NOT NULL GRANT SELECT ON rowpost.spool TO rowpost_reader, rowpost_body_reader;
IF OBJECT_ID(N'rowpost.spooled_message', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.spooled_message TO rowpost_operator;
IF OBJECT_ID(N'rowpost.spooled_message', N'U') IS NOT NULL GRANT SELECT ON rowpost.spooled_message TO rowpost_reader, rowpost_body_reader;
IF OBJECT_ID(N'rowpost.ledger', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.ledger TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.job', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.job TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.job_part', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.job_part TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.staged_message', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.staged_message TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.schedule', N'U') IS NOT NULL GRANT SELECT, INSERT, UPDATE, DELETE ON rowpost.schedule TO rowpost_endpoint, rowpost_operator;
IF OBJECT_ID(N'rowpost.schedule', N'U') IS NOT NULL GRANT SELECT ON rowpost.schedule TO rowpost_reader, rowpost_body_reader;
GRANT SELECT, INSERT, UPDATE, DELETE ON dbo.SubscriptionRouting TO rowpost_endpoint, rowpost_operator;
GRANT SELECT ON dbo.SubscriptionRouting TO rowpost_reader, rowpost_body_reader;
GO
DECLARE @grants nvarchar(max) = (
    SELECT STRING_AGG(CAST(CONCAT(
        N'GRANT EXECUTE ON rowpost.', QUOTENAME(CONCAT(N'_write_subscription:', t.table_key)), N' TO rowpost_endpoint, rowpost_operator; ',
        N'GRANT EXECUTE ON rowpost.', QUOTENAME(CONCAT(N'_read_subscriptions:', t.table_key)), N' TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader; ',
        N'GRANT SELECT, INSERT, UPDATE, DELETE ON ', QUOTENAME(t.schema_name), N'.', QUOTENAME(t.table_name), N' TO rowpost_endpoint, rowpost_operator; '
    ) AS nvarchar(max)), N'')
    FROM rowpost.subscription_table AS t
);
EXEC (@grants);
GO
