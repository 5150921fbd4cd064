IF OBJECT_ID(N'rowpost.failure', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- Failed attempts per message, shared by all workers. Only a failure writes to this table.
CREATE TABLE rowpost.failure
(
    queue_key nvarchar(128) NOT NULL,
    id uniqueidentifier NOT NULL,
    attempts int NOT NULL,
    failed_at datetime2(3) NOT NULL,
    CONSTRAINT failure_key PRIMARY KEY CLUSTERED (queue_key, id)
);
GO
CREATE NONCLUSTERED INDEX failure_failed_at ON rowpost.failure (failed_at);
GO
SET NOEXEC OFF;
GO
