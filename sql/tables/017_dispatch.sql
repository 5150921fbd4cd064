-- In the queue's database: the messages whose operations were sent from an outbox. A row commits together with the sent
-- messages and is deleted after the outbox has deleted the operations, so that a crash in between sends nothing twice.
IF OBJECT_ID(N'rowpost.dispatch', N'U') IS NULL
BEGIN
    CREATE TABLE rowpost.dispatch
    (
        endpoint nvarchar(200) NOT NULL,
        message_id nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
        dispatched_at datetime2(3) NOT NULL,
        CONSTRAINT dispatch_key PRIMARY KEY CLUSTERED (endpoint, message_id)
    );

    CREATE NONCLUSTERED INDEX dispatch_dispatched_at ON rowpost.dispatch (dispatched_at);
END;
GO
