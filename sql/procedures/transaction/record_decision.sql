SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_decision
    @queue_key nvarchar(256), -- of the queue whose message is handled
    @transaction_id varchar(128),
    @participants nvarchar(max) -- JSON array: names of the databases that are prepared
AS
/*
Records the decision to commit, valid when the caller's transaction commits; called before the first PREPARE.
Atomicity: in the caller's transaction.
Locking:   the new row, and an application lock that shows probe_transaction that the transaction still runs.
The caller must be allowed to receive from the message's queue, so that nobody decides for another's transaction.
*/
SET NOCOUNT, XACT_ABORT ON;

IF LEN(CONCAT(@queue_key, N'.')) > 129 OR LEN(CONCAT(@transaction_id, N'.')) > 65
    THROW 51034, N'The decision cannot be recorded: a queue key has at most 128 characters, the id of a transaction 64.', 1;

EXEC rowpost._require_receiver @queue_key = @queue_key, @subject = @queue_key;

DECLARE @lock_name nvarchar(255) = N'rowpost ' + @transaction_id;
DECLARE @granted int = 0;

IF @@TRANCOUNT > 0
    EXEC @granted = sys.sp_getapplock @Resource = @lock_name, @LockMode = 'Exclusive', @LockOwner = 'Transaction';

-- Without the lock, probe_transaction would report that the transaction has ended.
IF @granted < 0
    THROW 51012, N'The decision cannot be recorded: another transaction has the same id, or the wait for its lock ended in a deadlock.', 1;

INSERT INTO rowpost.decision (transaction_id, participants, queue_key, decided_at)
VALUES (@transaction_id, @participants, @queue_key, SYSUTCDATETIME());
GO
