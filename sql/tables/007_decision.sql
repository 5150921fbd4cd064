-- Decisions to commit transactions over several databases. A decision commits with the message's own transaction. A
-- prepared participant commits if its transaction is in this table; otherwise it rolls back. `queue_key`: of the message's queue.
IF OBJECT_ID(N'rowpost.decision', N'U') IS NULL
    CREATE TABLE rowpost.decision
    (
        transaction_id varchar(64) NOT NULL,
        participants nvarchar(max) NOT NULL,
        queue_key nvarchar(128) NOT NULL,
        decided_at datetime2(3) NOT NULL,
        CONSTRAINT decision_key PRIMARY KEY CLUSTERED (transaction_id)
    );
GO
