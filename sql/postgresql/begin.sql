-- One deployment at a time: a second one waits here until the first has committed or gone.
BEGIN;
SET LOCAL transaction_isolation = 'read committed';
SELECT pg_advisory_xact_lock(hashtextextended('rowpost deployment', 0));
