-- Archives the audit queue: the oldest messages go into audit_archive, in batches that commit one by one.
-- SQL Server. Set the three values, run it in the queue's database; it may be stopped and run again at any time.
-- The time of archiving is the server's. Receivers of the audit queue are stepped over. The operation log gets a line.
-- sqlcmd and SQL Server Agent connect with QUOTED_IDENTIFIER OFF, with which a table with a filtered index cannot be changed.
SET ANSI_NULLS, QUOTED_IDENTIFIER ON;
GO
SET NOCOUNT, XACT_ABORT ON;

DECLARE @batch int = 1000; -- messages per transaction: below 5,000 no lock grows into one of the whole table
DECLARE @at_most int = 1000000; -- messages in this run
DECLARE @keep int = 0; -- the newest so many stay
DECLARE @moved int = 1, @total int = 0, @newest bigint;

IF OBJECT_ID(N'dbo.audit_archive', N'U') IS NULL
    CREATE TABLE dbo.audit_archive
    (
        archived_at datetime2(3) NOT NULL,
        row_version bigint NOT NULL,
        id uniqueidentifier NOT NULL,
        headers nvarchar(max) NOT NULL,
        body varbinary(max) NULL,
        CONSTRAINT audit_archive_key PRIMARY KEY CLUSTERED (row_version, id)
    );

SELECT @newest = MIN(n.RowVersion)
FROM (SELECT TOP (@keep) q.RowVersion FROM dbo.audit AS q WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) ORDER BY q.RowVersion DESC) AS n;

WHILE @moved > 0 AND @total < @at_most
BEGIN
    WITH oldest AS (
        SELECT TOP (@batch) q.Id, q.RowVersion, q.Headers, q.Body
        FROM dbo.audit AS q WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE q.RowVersion < ISNULL(@newest, 9223372036854775807)
        ORDER BY q.RowVersion
    )
    DELETE FROM oldest
    OUTPUT SYSUTCDATETIME(), deleted.RowVersion, deleted.Id, deleted.Headers, deleted.Body
    INTO dbo.audit_archive (archived_at, row_version, id, headers, body);

    SET @moved = @@ROWCOUNT;
    SET @total += @moved;
END;

IF @total > 0 AND EXISTS (SELECT 1 FROM rowpost.queue AS q WHERE q.queue_name = N'audit')
    EXEC rowpost.record_operation @operation_name = N'archive', @client = N'archive_audit.sql', @queue_name = N'audit', @done = @total;

SELECT @total AS archived;
GO
