SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[delay_message:{queue_key}]
    @headers nvarchar(max), -- JSON object of strings, or '' for none
    @body varbinary(max) = NULL,
    @delay_ms bigint -- due after so many milliseconds, by this server's clock; negative: at once
AS
/*
Stores one message that the queue gets when its time has come.
Atomicity: one INSERT in the caller's transaction.
Locking:   none beyond the new row.
Order:     by due time.
*/
SET NOCOUNT, XACT_ABORT ON;

IF @delay_ms IS NULL OR @delay_ms NOT BETWEEN -3155760000000 AND 3155760000000
    THROW 51010, N'A message can be delayed by 100 years at most.', 1;

INSERT INTO {delayed_table} (Headers, Body, Due)
VALUES
(
    @headers,
    @body,
    DATEADD(MILLISECOND, CAST(@delay_ms % 86400000 AS int), DATEADD(DAY, CAST(@delay_ms / 86400000 AS int), GETUTCDATE()))
);
GO
