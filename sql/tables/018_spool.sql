IF OBJECT_ID(N'rowpost.spool', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- Queues that a stream drains: whose they are, and whether a batch of its was logged. One stream a queue.
CREATE TABLE rowpost.spool
(
    queue_key nvarchar(128) NOT NULL,
    owned_by nvarchar(200) NOT NULL,
    confirmed bit NOT NULL,
    taken_at datetime2(3) NOT NULL,
    CONSTRAINT spool_key PRIMARY KEY CLUSTERED (queue_key)
);
GO
SET NOEXEC OFF;
GO
