-- The last row version that was purged from a queue, so that a stream that has not read so far reports the purge.
IF OBJECT_ID(N'rowpost.purge', N'U') IS NULL
    CREATE TABLE rowpost.purge
    (
        queue_key nvarchar(128) NOT NULL,
        row_version bigint NOT NULL,
        purged_at datetime2(3) NOT NULL,
        CONSTRAINT purge_key PRIMARY KEY CLUSTERED (queue_key)
    );
GO
