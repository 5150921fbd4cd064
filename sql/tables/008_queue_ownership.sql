-- Queues that belong to one process, and the time until which the process has said that it owns the queue.
IF OBJECT_ID(N'rowpost.queue_ownership', N'U') IS NULL
    CREATE TABLE rowpost.queue_ownership
    (
        queue_key nvarchar(128) NOT NULL,
        ends_at datetime2(3) NOT NULL,
        CONSTRAINT queue_ownership_pk PRIMARY KEY CLUSTERED (queue_key)
    );
GO
