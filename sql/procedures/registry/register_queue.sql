SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.register_queue
    @queue_key nvarchar(256),
    @queue_name nvarchar(800),
    @catalog_name nvarchar(256) = NULL, -- NULL: this database
    @schema_name nvarchar(256),
    @table_name nvarchar(256),
    @kind varchar(20), -- own, adopted or external
    @body_string bit,
    @clustered bit,
    @delayed bit, -- has a delayed table
    @lease bit = NULL -- has a table of leases; NULL as 0
AS
/*
Registers a queue, or updates its entry.
Atomicity: in the caller's transaction.
Locking:   other registrations may wait until the caller commits, readers only for an entry that changes; only deployments and
           processes with a queue of their own call it.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@queue_name, N'.')) > 401 OR LEN(CONCAT(@queue_key, N'.')) > 129
   OR LEN(CONCAT(@catalog_name, N'.')) > 129 OR LEN(CONCAT(@schema_name, N'.')) > 129
   OR LEN(CONCAT(@table_name, N'.')) > 129
    THROW 51002, N'The queue cannot be registered: its name may have at most 400 characters, its key, schema, table and catalog 128 each.', 1;

DECLARE @message nvarchar(2048);

IF LEN(ISNULL(@table_name, N'')) = 0 OR LEN(ISNULL(@queue_key, N'')) = 0 OR LEN(ISNULL(@queue_name, N'')) = 0
    THROW 51002, N'The queue cannot be registered: its name, key and table must be given.', 1;

-- Names are compared as the database compares them, and differ byte by byte: if the database ignores case, Sales and sales
-- are one table.
SELECT TOP (1) @message = CONCAT(
    N'The queue ''', @queue_name, N''' would share its name, key or table with the queue ''', q.queue_name,
    N'''. Choose a name that differs in more than case.'
)
FROM rowpost.queue AS q WITH (UPDLOCK, HOLDLOCK)
WHERE (q.queue_key = @queue_key OR q.queue_name = @queue_name
       OR (q.schema_name = @schema_name AND q.table_name = @table_name AND ISNULL(q.catalog_name, N'') = ISNULL(@catalog_name, N'')))
  AND CAST(q.queue_name AS varbinary(800)) <> CAST(@queue_name AS varbinary(800));

SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
IF @message IS NOT NULL
    THROW 51005, @message, 1;

-- An entry that is right is not written, so that nobody waits for it.
UPDATE q
SET q.kind = @kind,
    q.body_string = @body_string,
    q.[clustered] = @clustered,
    q.delayed = @delayed,
    q.lease = ISNULL(@lease, 0)
FROM rowpost.queue AS q
WHERE q.queue_key = @queue_key
  AND (q.kind <> @kind OR q.body_string <> @body_string OR q.[clustered] <> @clustered OR q.delayed <> @delayed OR q.lease <> ISNULL(@lease, 0));

IF NOT EXISTS (SELECT 1 FROM rowpost.queue AS q WHERE q.queue_key = @queue_key)
    INSERT INTO rowpost.queue (queue_key, queue_name, catalog_name, schema_name, table_name, address, kind, body_string, [clustered], delayed, lease)
    VALUES
    (
        @queue_key, @queue_name, @catalog_name, @schema_name, @table_name,
        CONCAT(@table_name, N'@', QUOTENAME(@schema_name), CASE WHEN @catalog_name IS NOT NULL THEN CONCAT(N'@', QUOTENAME(@catalog_name)) END),
        @kind, @body_string, @clustered, @delayed, ISNULL(@lease, 0)
    );
GO
