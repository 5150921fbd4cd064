-- Failed attempts per message, shared by all workers. Only a failure writes to this table.
IF OBJECT_ID(N'rowpost.failure', N'U') IS NULL
BEGIN
    CREATE TABLE rowpost.failure
    (
        queue_key nvarchar(128) NOT NULL,
        id uniqueidentifier NOT NULL,
        attempts int NOT NULL,
        failed_at datetime2(3) NOT NULL,
        CONSTRAINT failure_key PRIMARY KEY CLUSTERED (queue_key, id)
    );

    CREATE NONCLUSTERED INDEX failure_failed_at ON rowpost.failure (failed_at);
END;
GO
