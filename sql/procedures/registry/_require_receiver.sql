SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost._require_receiver
    @queue_key nvarchar(128), -- NULL: a queue that is not registered, for which only operators act
    @subject nvarchar(400) -- the queue or endpoint that the caller acts for, for the error's text
AS
/*
Raises an error if the caller may neither receive from a queue nor operate queues, so that no login acts for another's queue.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

IF rowpost."_may_receive"(@queue_key) = 0
BEGIN
    DECLARE @message nvarchar(2048) = CONCAT(
        N'The login ', ORIGINAL_LOGIN(), N' may not act for ''', @subject, N''': it may not receive from that queue and is no operator.',
        N' rowpost queue grant prints the statement that grants the right.'
    );
    SET @message = REPLACE(@message, N'%', N'%%'); -- THROW reads % as the start of a placeholder
    THROW 51024, @message, 1;
END;
GO
