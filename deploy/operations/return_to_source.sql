-- Returns one failed message from the error queue to the queue where it failed, headers and body as they are: in one
-- transaction, so that it is in the one queue or in the other. SQL Server. Put the row's number in the place of 0; the
-- first column of inspect_queue.sql and of `rowpost errors list` has it. The operation log gets a line. A second run finds
-- that line and changes nothing.
-- sqlcmd and SQL Server Agent connect with QUOTED_IDENTIFIER OFF, with which a table with a filtered index cannot be changed.
SET ANSI_NULLS, QUOTED_IDENTIFIER ON;
GO
SET NOCOUNT, XACT_ABORT ON;

DECLARE @row_version bigint = 0;
DECLARE @taken TABLE (id uniqueidentifier, row_version bigint, expired bit, headers nvarchar(max), body varbinary(max));
DECLARE @id uniqueidentifier, @headers nvarchar(max), @body varbinary(max), @queue_name nvarchar(400);

BEGIN TRANSACTION;

INSERT INTO @taken (id, row_version, expired, headers, body)
EXEC rowpost.[receive_message:error] @row_version = @row_version;

SELECT @id = t.id, @headers = t.headers, @body = t.body
FROM @taken AS t;

IF @id IS NULL AND EXISTS
(
    SELECT 1
    FROM rowpost.operation_log AS o
    WHERE o.operation_name = N'retry'
      AND o.queue_name = N'error'
      AND o.details LIKE CONCAT(N'{"row": ', @row_version, N'[,}]%')
)
BEGIN
    COMMIT TRANSACTION;
    SELECT N'The message was returned before. Nothing was changed.' AS outcome;
    RETURN;
END;

IF @id IS NULL
    THROW 51001, N'No such row in the error queue, or somebody holds it. Nothing was changed.', 1;

-- the queue as it is registered here, whatever way its address is spelt
SELECT @queue_name = q.queue_name
FROM rowpost.queue AS q
CROSS APPLY (VALUES (CONCAT(q.table_name, N'@', QUOTENAME(q.schema_name)))) AS a(address)
WHERE JSON_VALUE(@headers, N'$."NServiceBus.FailedQ"')
      IN (q.queue_name, a.address, CONCAT(a.address, N'@', QUOTENAME(ISNULL(q.catalog_name, DB_NAME()))));

IF @queue_name IS NULL
    THROW 51001, N'The queue where it failed is not registered here. Nothing was changed.', 1;

EXEC rowpost.send_message @queue_name = @queue_name, @headers = @headers, @body = @body, @id = @id;

DECLARE @message_id nvarchar(200) = LEFT(JSON_VALUE(@headers, N'$."NServiceBus.MessageId"'), 200);
DECLARE @details nvarchar(100) = CONCAT(N'{"row": ', @row_version, N'}');
EXEC rowpost.record_operation
    @operation_name = N'retry', @client = N'return_to_source.sql', @queue_name = N'error', @message_id = @message_id, @details = @details,
    @outcome = @queue_name;

COMMIT TRANSACTION;
GO
