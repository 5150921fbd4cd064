IF OBJECT_ID(N'rowpost.outbox_operations', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- What handled messages caused and what has not left yet: sends and publishes as JSON, for the moment between the commit
-- of the business data and that of the queue. Empty most of the time.
CREATE TABLE rowpost.outbox_operations
(
    endpoint nvarchar(200) NOT NULL,
    message_id nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
    operations nvarchar(max) NOT NULL,
    CONSTRAINT outbox_operations_key PRIMARY KEY CLUSTERED (endpoint, message_id)
);
GO
SET NOEXEC OFF;
GO
