SET ANSI_NULLS ON;
SET QUOTED_IDENTIFIER ON;
GO
CREATE OR ALTER PROCEDURE rowpost.[maintain_queue:{queue_key}]
    @offline bit = NULL -- 1: also what keeps everybody out while it runs
AS
/*
Keeps the queue's table healthy, and says what was done, and what needs a person.
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
