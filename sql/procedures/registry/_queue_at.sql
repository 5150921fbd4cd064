SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER FUNCTION rowpost._queue_at(@address nvarchar(400)) RETURNS nvarchar(128)
AS
/*
Returns the key of the registered queue that an address in a table of subscriptions means, or nothing.
The address is the queue's name, or table@[schema], also with @[catalog]. Both reads are seeks, so that without
READ_COMMITTED_SNAPSHOT they wait for no entry but the queue's own.
Atomicity: reads only.
Locking:   none that lasts.
*/
BEGIN
    -- The registry leaves this database's name out, which changes when a copy of the database is restored.
    DECLARE @here nvarchar(260) = CONCAT(N'@', QUOTENAME(DB_NAME()));
    DECLARE @local nvarchar(400) = CASE WHEN RIGHT(@address, LEN(@here)) = @here THEN LEFT(@address, LEN(@address) - LEN(@here)) ELSE @address END;

    RETURN ISNULL(
        (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.address = @local),
        (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = @address)
    );
END;
GO
