SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost._resolve_queue
    @queue_name nvarchar(800),
    @queue_key nvarchar(128) OUTPUT
AS
/*
Finds the key of a registered queue; raises an error if the queue is not registered.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

SET @queue_key = (SELECT q.queue_key FROM rowpost.queue AS q WHERE q.queue_name = @queue_name);

IF @queue_key IS NULL
BEGIN
    DECLARE @alike nvarchar(400);
    SELECT @alike = MIN(q.queue_name)
    FROM rowpost.queue AS q
    WHERE q.queue_name COLLATE latin1_general_ci_ai = @queue_name COLLATE latin1_general_ci_ai;

    DECLARE @message nvarchar(2048) = CONCAT(
        N'No queue named ''', @queue_name, N''' is registered in this database.',
        CASE
            WHEN @alike IS NOT NULL
            THEN CONCAT(N' There is a queue ''', @alike, N''', whose name differs in upper and lower case or in an accent.')
        END,
        N' rowpost queue list shows those that are; rowpost queue create makes one.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51001, @message, 1;
END;
GO
