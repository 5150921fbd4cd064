IF OBJECT_ID(N'rowpost.decision', N'U') IS NOT NULL SET NOEXEC ON;
GO
-- Decisions to commit of transactions over several databases. A decision commits with the message's own transaction;
-- a participant that is found prepared commits if its transaction stands here, and rolls back if it does not.
CREATE TABLE rowpost.decision
(
    transaction_id varchar(64) NOT NULL,
    participants nvarchar(max) NOT NULL,
    decided_at datetime2(3) NOT NULL,
    CONSTRAINT decision_key PRIMARY KEY CLUSTERED (transaction_id)
);
GO
SET NOEXEC OFF;
GO
