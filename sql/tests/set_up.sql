-- What the test classes share, in a class without tests. deploy/tsqlt/run.py loads it before them.
SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
EXEC tSQLt.NewTestClass @ClassName = N'rowpost_tests';
GO
CREATE OR ALTER PROCEDURE rowpost_tests.empty_tables
AS
/*
Lets a test begin with empty tables and with no queue, saga and table of subscriptions but the sample ones, so that a class also runs in a
database that others use. The [SetUp] of each class calls it, in the transaction of the test, which tSQLt rolls back.
It deletes rows and calls no tSQLt.FakeTable: that replaces a table by one without keys and indexes, and the procedures rely on both, for
example record_handled on the error 2627, and receive_messages on an index for FORCESEEK.
*/
SET NOCOUNT ON;

DELETE s FROM dbo.Sample AS s;
DELETE d FROM dbo.[Sample.Delayed] AS d;
DELETE l FROM dbo.[Sample.Leased] AS l;
DELETE s FROM dbo.SampleSaga AS s;
DELETE r FROM dbo.SampleRouting AS r;
DELETE r FROM dbo.SubscriptionRouting AS r;
DELETE q FROM rowpost.queue AS q WHERE q.queue_key <> N'Sample';
DELETE s FROM rowpost.saga AS s WHERE s.saga_key <> N'SampleSaga';
DELETE t FROM rowpost.subscription_table AS t WHERE t.table_key <> N'SampleRouting';
DELETE f FROM rowpost.failure AS f;
DELETE d FROM rowpost.decision AS d;
DELETE l FROM rowpost.queue_ownership AS l;
DELETE o FROM rowpost.outbox_operations AS o;
DELETE o FROM rowpost.outbox AS o;
DELETE d FROM rowpost.dispatch AS d;
DELETE m FROM rowpost.spooled_message AS m;
DELETE s FROM rowpost.spool AS s;
DELETE l FROM rowpost.ledger AS l;
DELETE m FROM rowpost.staged_message AS m;
DELETE p FROM rowpost.job_part AS p;
DELETE j FROM rowpost.job AS j;
DELETE p FROM rowpost.purge AS p;
DELETE d FROM rowpost.declared_feature AS d;
DELETE t FROM rowpost.taken_subscription AS t;
DELETE c FROM rowpost.queue_control AS c;
DELETE o FROM rowpost.operation_log AS o;
DELETE q FROM rowpost.supervised_queue AS q;
DELETE s FROM rowpost.supervisor AS s;
DELETE s FROM rowpost.schedule AS s;
GO
