SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[maintain_queue:{queue_key}]
    @offline bit = NULL -- 1: also steps that block senders and receivers while they run
AS
/*
Maintains the queue's table, and returns what was done and what is left to do.
Atomicity: changes nothing.
Locking:   none.
Babelfish: no upkeep in T-SQL; the autovacuum of the PostgreSQL beneath it looks after the table.
*/
SET NOCOUNT, XACT_ABORT ON;

SELECT
    N'vacuum' AS action,
    N'Dead rows are removed by the autovacuum of the server beneath and from T-SQL by nobody.' AS reason,
    N'VACUUM' AS statement,
    N'waits' AS state;
GO
