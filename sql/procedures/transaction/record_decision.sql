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
DECLARE @granted int = 0;

IF @@TRANCOUNT > 0
    EXEC @granted = sys.sp_getapplock @Resource = @lock_name, @LockMode = 'Exclusive', @LockOwner = 'Transaction';

-- without the lock probe_transaction would take the transaction for one that is over
IF @granted < 0
    THROW 51012, N'The lock of the transaction was refused: another one bears the same id, or the wait ended in a deadlock.', 1;

INSERT INTO rowpost.decision (transaction_id, participants, decided_at)
VALUES (@transaction_id, @participants, SYSUTCDATETIME());
GO
