SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost._read_other_subscriptions
    @topics nvarchar(max) = NULL, -- JSON array; NULL: all
    @found nvarchar(max) OUTPUT -- JSON objects with commas between them; NULL: none
AS
/*
Reads the subscriptions in all registered tables of subscriptions, all or those to the given topics.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @table_key nvarchar(128) = N'';
DECLARE @procedure nvarchar(300);

SET @found = NULL;

WHILE 1 = 1
BEGIN
    SET @table_key = (SELECT MIN(t.table_key) FROM rowpost.subscription_table AS t WHERE t.table_key > @table_key);

    IF @table_key IS NULL
        BREAK;

    -- A call and not dynamic SQL, so that ownership chaining gives access to the table.
    SET @procedure = CONCAT(N'rowpost.', QUOTENAME(CONCAT(N'_read_subscriptions:', @table_key)));
    EXEC @procedure @topics = @topics, @found = @found OUTPUT;
END;
GO
