-- Messages of a job that sends all its messages at its end. Its tasks store them here. `attempt` identifies an attempt of a task.
-- They belong to the login that stored them.
IF OBJECT_ID(N'rowpost.staged_message', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE rowpost.staged_message
    (
        job_key nvarchar(200) COLLATE Latin1_General_100_BIN2 NOT NULL,
        attempt nvarchar(100) COLLATE Latin1_General_100_BIN2 NOT NULL,
        number bigint IDENTITY (1, 1) NOT NULL,
        id uniqueidentifier NULL,
        headers nvarchar(max) NOT NULL,
        body varbinary(max) NULL,
        staged_at datetime2(3) NOT NULL,
        owner_login nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT staged_message_login DEFAULT (ORIGINAL_LOGIN()),
        CONSTRAINT staged_message_key PRIMARY KEY CLUSTERED (job_key, attempt, number)
    );

    -- Otherwise a statement that changes many rows would lock the table, and others would wait.
    ALTER TABLE rowpost.staged_message SET (LOCK_ESCALATION = DISABLE);
END;
GO
