SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.send_to_subscriber
    @catalog_name nvarchar(256) = NULL, -- NULL: this database
    @schema_name nvarchar(256),
    @table_name nvarchar(256),
    @headers nvarchar(max),
    @body varbinary(max) = NULL,
    @time_to_be_received_ms bigint = NULL,
    @otherwise_queue nvarchar(800) = NULL, -- a registered queue that gets the copy if the table is gone
    @otherwise_headers nvarchar(max) = NULL -- the headers that it has there
AS
/*
Sends a copy of an event to a subscriber that is not registered, and returns whether its table was there. If it is gone,
the copy goes to the other queue.
Runs as the caller, who needs the right to insert into that table, and to send to the other queue.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
*/
SET NOCOUNT, XACT_ABORT ON;

-- A part of more than 128 characters makes the name NULL: it is not cut to the name of another table.
DECLARE @table nvarchar(1000) = QUOTENAME(ISNULL(@catalog_name, DB_NAME())) + N'.' + QUOTENAME(@schema_name) + N'.' + QUOTENAME(@table_name);

IF OBJECT_ID(@table, N'U') IS NULL AND @otherwise_queue IS NOT NULL
BEGIN
    EXEC rowpost.send_message @queue_name = @otherwise_queue, @headers = @otherwise_headers, @body = @body;
    SELECT CAST(0 AS bit) AS stored;
    RETURN;
END;

EXEC rowpost.send_unregistered
    @catalog_name = @catalog_name, @schema_name = @schema_name, @table_name = @table_name,
    @headers = @headers, @body = @body, @time_to_be_received_ms = @time_to_be_received_ms;
SELECT CAST(1 AS bit) AS stored;
GO
