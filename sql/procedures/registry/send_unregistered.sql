SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.send_unregistered
    @catalog_name nvarchar(256) = NULL, -- NULL: this database
    @schema_name nvarchar(256),
    @table_name nvarchar(256),
    @headers nvarchar(max),
    @body varbinary(max) = NULL,
    @id uniqueidentifier = NULL,
    @time_to_be_received_ms bigint = NULL
AS
/*
Sends to a queue table that is not registered, for example an unknown reply address.
Runs as the caller: the INSERT is dynamic SQL, which needs the caller's own right to the table. The server quotes the
names, the table must exist and have a queue's columns, and values are parameters.
Atomicity: one INSERT in the caller's transaction.
Locking:   only the new row.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @message nvarchar(2048);
DECLARE @catalog nvarchar(258) = QUOTENAME(ISNULL(@catalog_name, DB_NAME()));
-- A part of more than 128 characters makes the name NULL: it is not cut to the name of another table.
DECLARE @table nvarchar(1000) = @catalog + N'.' + QUOTENAME(@schema_name) + N'.' + QUOTENAME(@table_name);

IF @time_to_be_received_ms NOT BETWEEN 1 AND 3155760000000
    THROW 51004, N'The time to be received must be between 1 millisecond and 100 years; leave it out for a message that never expires.', 1;

IF @table IS NULL OR OBJECT_ID(@table, N'U') IS NULL
BEGIN
    SET @message = CONCAT(N'There is no queue table ', ISNULL(@table, @table_name), N', or you may not see it.');
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51001, @message, 1;
END;

DECLARE @columns int;
DECLARE @has_recoverable int;
DECLARE @look nvarchar(max) = CONCAT(
    N'SELECT @columns = SUM(CASE WHEN c.name IN (N''Id'', N''Expires'', N''Headers'', N''Body'', N''RowVersion'') THEN 1 ELSE 0 END),',
    N' @has_recoverable = SUM(CASE WHEN c.name = N''Recoverable'' THEN 1 ELSE 0 END)',
    N' FROM ', @catalog, N'.sys.columns AS c WHERE c.object_id = OBJECT_ID(@table, N''U'');'
);
EXEC sys.sp_executesql @look, N'@table nvarchar(1000), @columns int OUTPUT, @has_recoverable int OUTPUT',
    @table = @table, @columns = @columns OUTPUT, @has_recoverable = @has_recoverable OUTPUT;

IF @columns IS NULL OR @columns < 5
BEGIN
    SET @message = CONCAT(N'The table ', @table, N' is not a queue: it needs the columns Id, Expires, Headers, Body and RowVersion.');
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51009, @message, 1;
END;

DECLARE @send nvarchar(max) = CONCAT(
    N'INSERT INTO ', @table,
    CASE WHEN @has_recoverable = 1 THEN N' (Recoverable, Id, Expires, Headers, Body) VALUES (1, ' ELSE N' (Id, Expires, Headers, Body) VALUES (' END,
    N'ISNULL(@id, NEWID()), DATEADD(MILLISECOND, CAST(@time_to_be_received_ms % 86400000 AS int),',
    N' DATEADD(DAY, CAST(@time_to_be_received_ms / 86400000 AS int), GETUTCDATE())), @headers, @body);'
);
EXEC sys.sp_executesql @send, N'@id uniqueidentifier, @time_to_be_received_ms bigint, @headers nvarchar(max), @body varbinary(max)',
    @id = @id, @time_to_be_received_ms = @time_to_be_received_ms, @headers = @headers, @body = @body;
GO
