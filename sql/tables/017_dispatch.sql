IF OBJECT_ID(N'rowpost.dispatch', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- In the queue's database: whose operations have left an outbox. A row commits together with what was sent, and is
-- forgotten when the outbox knows; so nothing leaves twice, whoever dies in between.
CREATE TABLE rowpost.dispatch
(
    endpoint nvarchar(200) NOT NULL,
    message_id nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    dispatched_at datetime2(3) NOT NULL,
    CONSTRAINT dispatch_key PRIMARY KEY CLUSTERED (endpoint, message_id)
);
GO
CREATE NONCLUSTERED INDEX dispatch_dispatched_at ON rowpost.dispatch (dispatched_at);
GO
SET NOEXEC OFF;
GO
