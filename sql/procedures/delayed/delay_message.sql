SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[delay_message:{queue_key}]
    @headers nvarchar(max), -- JSON object of strings, or '' for none
    @body varbinary(max) = NULL,
    @delay_ms bigint -- milliseconds until the message is due, by this server's clock; negative: due now
AS
/*
Stores one message that is moved to the queue when it is due.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
Order:     by due time.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @delay_ms IS NULL OR @delay_ms NOT BETWEEN -3155760000000 AND 3155760000000
    THROW 51010, N'The delay must be given, and be at most 100 years.', 1;

INSERT INTO {delayed_table} (Headers, Body, Due)
VALUES
(
    @headers,
    @body,
    DATEADD(MILLISECOND, CAST(@delay_ms % 86400000 AS int), DATEADD(DAY, CAST(@delay_ms / 86400000 AS int), GETUTCDATE()))
);
GO
