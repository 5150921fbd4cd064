IF OBJECT_ID(N'rowpost.purge', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- How far queues were emptied on purpose: a stream that has not read so far yet is told, and does not take it for nothing.
CREATE TABLE rowpost.purge
(
    queue_key nvarchar(128) NOT NULL,
    row_version bigint NOT NULL,
    purged_at datetime2(3) NOT NULL,
    CONSTRAINT purge_key PRIMARY KEY CLUSTERED (queue_key)
);
GO
SET NOEXEC OFF;
GO
