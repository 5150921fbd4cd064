-- One deployment at a time: a second one waits here until the first one commits or ends.
BEGIN;
SET LOCAL transaction_isolation = 'read committed';
-- The journal keeps how the server renders names. A limit for the statements of a login is not one for the build of an index.
SET LOCAL quote_all_identifiers = off;
SET LOCAL standard_conforming_strings = on;
SET LOCAL statement_timeout = 0;
DO $rowpost$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('rowpost deployment', 0));
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RAISE EXCEPTION USING ERRCODE = 'RP012',
            MESSAGE = 'The lock of deployments was refused: the wait for another deployment ended in a timeout or a deadlock. Run it again.';
END
$rowpost$;
