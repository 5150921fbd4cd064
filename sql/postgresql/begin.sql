-- One deployment at a time: a second one waits here until the first one commits or ends.
BEGIN;
SET LOCAL transaction_isolation = 'read committed';
DO $rowpost$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('rowpost deployment', 0));
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RAISE EXCEPTION USING ERRCODE = 'RP012',
            MESSAGE = 'The lock of deployments was refused: the wait for another deployment ended in a timeout or a deadlock. Run it again.';
END
$rowpost$;
