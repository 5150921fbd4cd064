-- The operations of handled messages that are not sent yet, as JSON, between the commit of the business data and the
-- commit of the queue. Usually empty.
IF OBJECT_ID(N'rowpost.outbox_operations', N'U') IS NULL
    CREATE TABLE rowpost.outbox_operations
    (
        endpoint nvarchar(200) NOT NULL,
        message_id nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
        operations nvarchar(max) NOT NULL,
        CONSTRAINT outbox_operations_key PRIMARY KEY CLUSTERED (endpoint, message_id)
    );
GO
