-- Queues that a stream drains: the owner of the spool, and whether it has logged a batch. One stream per queue.
IF OBJECT_ID(N'rowpost.spool', N'U') IS NULL
    CREATE TABLE rowpost.spool
    (
        queue_key nvarchar(128) NOT NULL,
        owned_by nvarchar(200) NOT NULL,
        confirmed bit NOT NULL,
        taken_at datetime2(3) NOT NULL,
        CONSTRAINT spool_key PRIMARY KEY CLUSTERED (queue_key)
    );
GO
