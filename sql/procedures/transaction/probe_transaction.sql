SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.probe_transaction
    @transaction_id varchar(64)
AS
/*
Says whether a transaction over several databases may still come to a decision: its coordinator has it open.
Atomicity: reads only. Read the decisions afterwards, in a statement of its own: what stands there then is final.
Locking:   the transaction's application lock, tested only: nothing is taken, nothing waited for.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    CAST(
        1 - APPLOCK_TEST(N'public', CONCAT(N'rowpost ', @transaction_id), N'Shared', N'Session') AS bit
    ) AS running;
GO
