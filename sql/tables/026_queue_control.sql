-- What operators have set for queues: paused, or how many workers at most. A queue without a row works as its environment says.
IF OBJECT_ID(N'rowpost.queue_control', N'U') IS NULL
    CREATE TABLE rowpost.queue_control
    (
        queue_key nvarchar(128) NOT NULL,
        is_paused bit NOT NULL,
        worker_limit int NULL,
        shared bit NOT NULL,
        reason nvarchar(400) NULL,
        changed_by nvarchar(128) NOT NULL,
        changed_at datetime2(3) NOT NULL,
        CONSTRAINT queue_control_key PRIMARY KEY CLUSTERED (queue_key)
    );
GO
