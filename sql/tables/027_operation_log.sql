-- What operators did: one row per operation, or per bulk operation, until the retention time ends. It holds neither bodies nor headers.
IF OBJECT_ID(N'rowpost.operation_log', N'U') IS NULL
BEGIN
    CREATE TABLE rowpost.operation_log
    (
        operation_id bigint IDENTITY (1, 1) NOT NULL,
        operation_name nvarchar(50) NOT NULL,
        operation_state nvarchar(20) NOT NULL,
        client nvarchar(50) NOT NULL,
        login_name nvarchar(128) NOT NULL,
        user_name nvarchar(200) NULL,
        queue_name nvarchar(400) NULL,
        message_id nvarchar(200) NULL,
        details nvarchar(4000) NULL,
        reason nvarchar(400) NULL,
        outcome nvarchar(1000) NULL,
        started_at datetime2(3) NOT NULL,
        changed_at datetime2(3) NOT NULL,
        ended_at datetime2(3) NULL,
        total_count bigint NULL,
        done_count bigint NOT NULL,
        gone_count bigint NOT NULL,
        refused_count bigint NOT NULL,
        reached bigint NULL,
        up_to bigint NULL,
        executor uniqueidentifier NULL,
        cancelled_by nvarchar(400) NULL,
        CONSTRAINT operation_log_key PRIMARY KEY CLUSTERED (operation_id),
        CONSTRAINT operation_log_state_known CHECK (operation_state IN (N'running', N'done', N'cancelled', N'failed', N'interrupted'))
    );

    CREATE INDEX operation_log_started_at ON rowpost.operation_log (started_at);
END;
GO
