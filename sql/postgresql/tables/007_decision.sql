-- Decisions to commit transactions over several databases. A decision commits with the message's own transaction. A
-- prepared participant commits if its transaction is in this table; otherwise it rolls back. `queue_key`: of the message's queue.
CREATE TABLE IF NOT EXISTS rowpost.decision
(
    transaction_id text NOT NULL,
    participants text NOT NULL,
    queue_key text NOT NULL,
    decided_at timestamp(3) NOT NULL,
    CONSTRAINT decision_key PRIMARY KEY (transaction_id)
);
