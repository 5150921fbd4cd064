SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.forget_decision
    @transaction_id varchar(128)
AS
/*
Deletes a decision after every participant has carried it out.
Atomicity: in the caller's transaction.
Locking:   one row of rowpost.decision.
A decision of a queue from which the caller may not receive stays.
*/
SET NOCOUNT, XACT_ABORT ON;

DELETE d
FROM rowpost.decision AS d
WHERE d.transaction_id = @transaction_id
  AND rowpost."_may_receive"(d.queue_key) = 1;
GO
