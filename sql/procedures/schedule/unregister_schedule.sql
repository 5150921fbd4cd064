SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.unregister_schedule
    @schedule_name nvarchar(400)
AS
/*
Removes a schedule. Messages that it has sent stay.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.schedule; waits for a supervisor that sends its message.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE s
FROM rowpost.schedule AS s
WHERE s.schedule_name = @schedule_name;
GO
