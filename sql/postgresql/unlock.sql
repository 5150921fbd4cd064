-- The end of a deployment of several transactions.
SELECT pg_advisory_unlock(hashtextextended('rowpost deployment', 0));
