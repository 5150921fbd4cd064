SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[send_message:{queue_key}]
    @headers nvarchar(max), -- JSON object of strings, or '' for none
    @body varbinary(max) = NULL,
    @id uniqueidentifier = NULL, -- the row's id; a new one when NULL
    @time_to_be_received_ms bigint = NULL, -- milliseconds until the message expires, by this server's clock
    @correlation_id varchar(510) = NULL, -- written only for transport versions 1 to 6; longer than the column, which refuses what is too long
    @reply_to_address varchar(510) = NULL -- written only for transport versions 1 to 6
AS
/*
Stores one message at the end of the queue.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
Order:     by RowVersion, which the table assigns.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @time_to_be_received_ms NOT BETWEEN 1 AND 3155760000000
    THROW 51004, N'The time to be received must be between 1 millisecond and 100 years; leave it out for a message that never expires.', 1;

-- The deployment makes it without the comment signs, if the table has Recoverable without a default.
INSERT INTO {queue_table} (Id, CorrelationId, ReplyToAddress, Expires, Headers, Body /*, Recoverable */)
VALUES
(
    ISNULL(@id, NEWID()),
    @correlation_id,
    @reply_to_address,
    -- In two steps, because DATEADD takes an int: milliseconds alone would end after 24.8 days.
    DATEADD(MILLISECOND, CAST(@time_to_be_received_ms % 86400000 AS int), DATEADD(DAY, CAST(@time_to_be_received_ms / 86400000 AS int), GETUTCDATE())),
    @headers,
    @body /*, 1 */
);
GO
