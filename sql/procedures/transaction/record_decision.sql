SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_decision
    @transaction_id varchar(64),
    @participants nvarchar(max) -- JSON array: names of the databases that are prepared
AS
/*
Writes down the decision to commit: it holds when the caller's transaction commits. Called before the first PREPARE.
Atomicity: in the caller's transaction.
Locking:   the new row; and an application lock on the transaction, by which probe_transaction sees that it still runs.
*/
SET NOCOUNT, XACT_ABORT ON;

DECLARE @lock_name nvarchar(255) = N'rowpost ' + @transaction_id;
IF @@TRANCOUNT > 0
    EXEC sys.sp_getapplock @Resource = @lock_name, @LockMode = 'Exclusive', @LockOwner = 'Transaction';

INSERT INTO rowpost.decision (transaction_id, participants, decided_at)
VALUES (@transaction_id, @participants, SYSUTCDATETIME());
GO
