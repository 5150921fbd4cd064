-- Who may execute what. Runs at every deployment. The rights on each queue and saga: tables/queue/grants.sql and
-- tables/saga/grants.sql. No role has a right on a table: procedures access the tables through ownership chaining.
IF DATABASE_PRINCIPAL_ID(N'rowpost_endpoint') IS NULL CREATE ROLE rowpost_endpoint; -- workers and senders
IF DATABASE_PRINCIPAL_ID(N'rowpost_operator') IS NULL CREATE ROLE rowpost_operator; -- people who operate the queues
IF DATABASE_PRINCIPAL_ID(N'rowpost_reader') IS NULL CREATE ROLE rowpost_reader; -- people and tools that only read, and see no body
IF DATABASE_PRINCIPAL_ID(N'rowpost_body_reader') IS NULL CREATE ROLE rowpost_body_reader; -- that also read bodies and states of sagas
GO
-- The catalog shows a user only the objects that the user has a right on, also inside procedures. Without this right
-- check_queue, list_queues, list_scripts and list_unmanaged_objects would find nothing.
GRANT VIEW DEFINITION ON SCHEMA::rowpost TO rowpost_endpoint, rowpost_operator, rowpost_reader, rowpost_body_reader;
GO
-- For the procedures that run as this user: to see each queue's table, to read its counters and sizes, and to find out
-- whether a table of rowpost has rows.
GRANT VIEW DEFINITION, VIEW DATABASE STATE TO rowpost_internal;
GRANT SELECT ON SCHEMA::rowpost TO rowpost_internal;
GO
-- Rendered from the roles in contract.yml. The dispatchers send_message and receive_messages run as the caller, so that
-- they give access to no queue whose own procedures refuse the caller. publish_message stores an event in the queue of
-- every subscriber: to subscribe is to agree to that.
{procedure_grants}
GO
