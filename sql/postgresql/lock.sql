-- The lock of begin.sql for a deployment of several transactions. It lasts until unlock.sql or the end of the session.
DO $rowpost$
BEGIN
    PERFORM pg_advisory_lock(hashtextextended('rowpost deployment', 0));
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RAISE EXCEPTION USING ERRCODE = 'RP012',
            MESSAGE = 'The lock of deployments was refused: the wait for another deployment ended in a timeout or a deadlock. Run it again.';
END
$rowpost$;
