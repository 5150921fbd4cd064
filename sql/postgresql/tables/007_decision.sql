-- Decisions to commit of transactions over several databases. A decision commits with the message's own transaction;
-- a participant that is found prepared commits if its transaction stands here, and rolls back if it does not.
CREATE TABLE IF NOT EXISTS rowpost.decision
(
    transaction_id text NOT NULL,
    participants text NOT NULL,
    decided_at timestamp(3) NOT NULL,
    CONSTRAINT decision_key PRIMARY KEY (transaction_id)
);
