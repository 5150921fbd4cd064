SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.probe_transaction
    @transaction_id varchar(128)
AS
/*
Returns whether the coordinator of a transaction over several databases still runs and may still decide.
Atomicity: reads only. Read the decisions afterwards, in another statement: if it returned false, they are final.
Locking:   tests the transaction's application lock; it takes no lock and never waits.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    CAST(
        1 - APPLOCK_TEST(N'public', CONCAT(N'rowpost ', @transaction_id), N'Shared', N'Session') AS bit
    ) AS running;
GO
