SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[send_messages:{queue_key}]
    @messages nvarchar(max), -- JSON array of {ordinal, headers, body_start, body_length, id, time_to_be_received_ms, correlation_id, reply_to_address}
    @bodies varbinary(max) = NULL -- the bodies, one after another; body_start counts from 1
AS
/*
Stores many messages in one statement, in the order given; all or none.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new rows.
Order:     RowVersion increases with the ordinal.
The bodies are sent as bytes and not in the JSON, where they would need four times the space.
*/
SET NOCOUNT, XACT_ABORT ON;

IF ISNULL(LEFT(@messages, 1), N'') <> N'['
    THROW 51006, N'The messages cannot be stored: @messages must be a JSON array.', 1;

-- Senders omit the field if it is null, so that most batches are parsed only once.
IF CHARINDEX(N'"time_to_be_received_ms"', @messages) > 0
   AND EXISTS
   (
       SELECT 1
       FROM OPENJSON(@messages) WITH (time_to_be_received_ms bigint) AS m
       WHERE m.time_to_be_received_ms NOT BETWEEN 1 AND 3155760000000
   )
    THROW 51004, N'The time to be received must be between 1 millisecond and 100 years; leave it out for a message that never expires.', 1;

-- The deployment makes it without the comment signs, if the table has Recoverable without a default.
INSERT INTO {queue_table} (Id, CorrelationId, ReplyToAddress, Expires, Headers, Body /*, Recoverable */)
SELECT
    ISNULL(m.id, NEWID()),
    m.correlation_id,
    m.reply_to_address,
    DATEADD(MILLISECOND, CAST(m.time_to_be_received_ms % 86400000 AS int), DATEADD(DAY, CAST(m.time_to_be_received_ms / 86400000 AS int), GETUTCDATE())),
    m.headers,
    SUBSTRING(@bodies, m.body_start, m.body_length) /*, 1 */
FROM OPENJSON(@messages) WITH
(
    ordinal int,
    headers nvarchar(max),
    body_start bigint,
    body_length bigint,
    id uniqueidentifier,
    time_to_be_received_ms bigint,
    correlation_id varchar(255),
    reply_to_address varchar(255)
) AS m
ORDER BY m.ordinal;
GO
