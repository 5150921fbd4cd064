-- Messages that a stream has moved from a queue and has not stored durably yet. `number` is the stream's offset.
IF OBJECT_ID(N'rowpost.spooled_message', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE rowpost.spooled_message
    (
        queue_key nvarchar(128) NOT NULL,
        number bigint IDENTITY (1, 1) NOT NULL,
        id uniqueidentifier NOT NULL,
        correlation_id varchar(255) NULL,
        reply_to_address varchar(255) NULL,
        recoverable bit NOT NULL,
        expires datetime NULL,
        headers nvarchar(max) NOT NULL,
        body varbinary(max) NULL,
        row_version bigint NOT NULL,
        CONSTRAINT spooled_message_key PRIMARY KEY CLUSTERED (queue_key, number)
    );

    -- Otherwise a statement that changes many rows would lock the table, and others would wait.
    ALTER TABLE rowpost.spooled_message SET (LOCK_ESCALATION = DISABLE);
END;
GO
