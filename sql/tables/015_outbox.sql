-- The messages that an endpoint has handled, in the database of its business data: one small row per message until the
-- retention time ends. A message's operations are in another table until they are sent, so that these rows never change.
-- The rows are stored in the order of time, because message ids are random: new rows fill pages, and old rows empty them.
IF OBJECT_ID(N'rowpost.outbox', N'U') IS NULL
BEGIN
    CREATE TABLE rowpost.outbox
    (
        endpoint nvarchar(200) NOT NULL,
        message_id nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
        handled_at datetime2(3) NOT NULL,
        CONSTRAINT outbox_key PRIMARY KEY NONCLUSTERED (endpoint, message_id) WITH (DATA_COMPRESSION = PAGE)
    );

    CREATE CLUSTERED INDEX outbox_handled_at ON rowpost.outbox (handled_at) WITH (DATA_COMPRESSION = PAGE);

    -- All endpoints insert into the last page. SQL Server 2019 and later, Azure SQL Database (5) and Managed Instance (8)
    IF CAST(SERVERPROPERTY(N'ProductMajorVersion') AS int) >= 15 OR CAST(SERVERPROPERTY(N'EngineEdition') AS int) IN (5, 8)
        EXEC (N'ALTER INDEX outbox_handled_at ON rowpost.outbox SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON);');
END;
GO
