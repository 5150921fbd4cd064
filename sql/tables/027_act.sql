-- What operators did: one row per act, or per act on many messages, until the retention time ends. It holds neither bodies nor headers.
IF OBJECT_ID(N'rowpost.act', N'U') IS NULL
BEGIN
    CREATE TABLE rowpost.act
    (
        act_id bigint IDENTITY (1, 1) NOT NULL,
        act_name nvarchar(50) NOT NULL,
        act_state nvarchar(20) NOT NULL,
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
        CONSTRAINT act_key PRIMARY KEY CLUSTERED (act_id),
        CONSTRAINT act_state_known CHECK (act_state IN (N'running', N'done', N'cancelled', N'failed', N'interrupted'))
    );

    CREATE INDEX act_started_at ON rowpost.act (started_at);
END;
GO
