-- The schedules: when each is due, and up to when its ticks are done. Whoever moves ticked_to on sends the message of the tick, in one transaction.
IF OBJECT_ID(N'rowpost.schedule', N'U') IS NULL -- noqa: PRS
BEGIN
    CREATE TABLE rowpost.schedule
    (
        schedule_name nvarchar(150) COLLATE Latin1_General_100_BIN2 NOT NULL,
        queue_key nvarchar(128) NOT NULL,
        destination nvarchar(200) NOT NULL,
        message_type nvarchar(200) NOT NULL,
        cron nvarchar(200) NULL,
        interval_ms bigint NULL,
        zone nvarchar(100) NOT NULL,
        missed nvarchar(10) NOT NULL,
        ticked_to datetime2(3) NOT NULL,
        next_due datetime2(3) NULL,
        sent_due datetime2(3) NULL,
        requested_at datetime2(3) NULL,
        is_paused bit NOT NULL,
        reason nvarchar(400) NULL,
        changed_by nvarchar(128) NOT NULL,
        changed_at datetime2(3) NOT NULL,
        CONSTRAINT schedule_key PRIMARY KEY CLUSTERED (schedule_name)
    );

    -- Otherwise a statement that changes many rows would lock the table, and supervisors would wait.
    ALTER TABLE rowpost.schedule SET (LOCK_ESCALATION = DISABLE);
END;
GO
