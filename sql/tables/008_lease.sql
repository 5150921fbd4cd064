-- Queues that belong to one process, and the time until which the process has renewed its lease.
IF OBJECT_ID(N'rowpost.lease', N'U') IS NULL
    CREATE TABLE rowpost.lease
    (
        queue_key nvarchar(128) NOT NULL,
        ends_at datetime2(3) NOT NULL,
        CONSTRAINT lease_key PRIMARY KEY CLUSTERED (queue_key)
    );
GO
