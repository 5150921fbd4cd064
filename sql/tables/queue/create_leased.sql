-- Messages that handlers hold without an open transaction: the columns of the queue's table, and who holds them until when. A
-- table that is there already stays as it is.
IF OBJECT_ID(N'{leased_table}', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE {leased_table}
    (
        token uniqueidentifier NOT NULL, -- whoever knows it may end or renew the lease
        Id uniqueidentifier NOT NULL,
        CorrelationId varchar(255) NULL,
        ReplyToAddress varchar(255) NULL,
        Expires datetime NULL,
        Headers nvarchar(max) NOT NULL,
        Body varbinary(max) NULL,
        RowVersion bigint NOT NULL,
        owner nvarchar(200) NOT NULL, -- host, process and slot
        leased_at datetime2(3) NOT NULL,
        due datetime2(3) NOT NULL, -- the message returns to its queue after this time, unless the lease is renewed
        progress_percent int NULL, -- 0 to 100
        progress_text nvarchar(400) NULL,
        CONSTRAINT [leased_pk:{queue_key}] PRIMARY KEY CLUSTERED (token)
    );

    CREATE UNIQUE NONCLUSTERED INDEX Index_RowVersion ON {leased_table} (RowVersion);

    -- Otherwise a renewal of many leases would lock the table.
    ALTER TABLE {leased_table} SET (LOCK_ESCALATION = DISABLE);
END;
GO
