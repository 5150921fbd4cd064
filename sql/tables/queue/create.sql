-- The queue's table, with the same columns as the NServiceBus transport's. Because of the default on Recoverable, an INSERT
-- need not name the column. A table that is there already stays as it is: check_queue says what is missing. Only the column
-- BodyString is added to it, if it is declared.
IF OBJECT_ID(N'{queue_table}', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE {queue_table}
    (
        Id uniqueidentifier NOT NULL,
        CorrelationId varchar(255) NULL,
        ReplyToAddress varchar(255) NULL,
        Recoverable bit NOT NULL CONSTRAINT [Recoverable:{queue_key}] DEFAULT (1),
        Expires datetime NULL,
        Headers nvarchar(max) NOT NULL,
        Body varbinary(max) NULL,
        RowVersion bigint IDENTITY (1, 1) NOT NULL
    );

    -- Receivers skip locked rows, and wait for a locked table. maintain_queue does this for a table that was made elsewhere.
    ALTER TABLE {queue_table} SET (LOCK_ESCALATION = DISABLE);

    -- The index for the order of the queue. A clustered index keeps new rows at the end and releases empty pages. With a
    -- heap (nonclustered), many concurrent receivers wait less for page latches. See rowpost.queue.clustered.
    -- Statistics of a queue are outdated at once, and each update of them compiles the plans again, which hints determine.
    IF EXISTS (SELECT 1 FROM rowpost.queue AS q WHERE q.queue_key = N'{queue_key}' AND q.[clustered] = 1)
        CREATE CLUSTERED INDEX Index_RowVersion ON {queue_table} (RowVersion) WITH (STATISTICS_NORECOMPUTE = ON);
    ELSE
        CREATE NONCLUSTERED INDEX Index_RowVersion ON {queue_table} (RowVersion) WITH (STATISTICS_NORECOMPUTE = ON);

    -- SQL Server 2019 and later, Azure SQL Database (5) and Managed Instance (8)
    IF CAST(SERVERPROPERTY(N'ProductMajorVersion') AS int) >= 15 OR CAST(SERVERPROPERTY(N'EngineEdition') AS int) IN (5, 8)
        EXEC (N'ALTER INDEX Index_RowVersion ON {queue_table} SET (OPTIMIZE_FOR_SEQUENTIAL_KEY = ON);');

    CREATE NONCLUSTERED INDEX Index_Expires ON {queue_table} (Expires) INCLUDE (Id, RowVersion) WHERE Expires IS NOT NULL
    WITH (STATISTICS_NORECOMPUTE = ON);
END;
GO
IF COL_LENGTH(N'{queue_table}', N'BodyString') IS NULL
   AND EXISTS (SELECT 1 FROM rowpost.queue AS q WHERE q.queue_key = N'{queue_key}' AND q.body_string = 1)
    ALTER TABLE {queue_table} ADD BodyString AS CAST(Body AS varchar(max));
GO
