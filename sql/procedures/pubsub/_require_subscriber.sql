SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost._require_subscriber
    @queue_address nvarchar(400) -- as it stands in the subscription table
AS
/*
Raises an error if the caller may neither receive from the queue of a subscription nor operate queues.
Atomicity: reads only.
Locking:   none that lasts.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @queue_key nvarchar(128) = rowpost."_queue_at"(@queue_address);

EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_address;
GO
