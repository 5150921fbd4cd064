SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.record_decision
    @transaction_id varchar(64),
    @participants nvarchar(max) -- JSON array: names of the databases that are prepared
AS
/*
Writes down the decision to commit: it holds when the caller's transaction commits.
Atomicity: in the caller's transaction.
Locking:   the new row.
*/
SET NOCOUNT, XACT_ABORT ON;

INSERT INTO rowpost.decision (transaction_id, participants, decided_at)
VALUES (@transaction_id, @participants, SYSUTCDATETIME());
GO
