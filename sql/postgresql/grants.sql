-- Nobody but the owner may execute anything, until tables/roles.sql, tables/queue/roles.sql, tables/saga/roles.sql or rowpost
-- queue grant gives a right. Runs at every deployment; the procedures of each queue and saga: tables/queue/grants.sql and
-- tables/saga/grants.sql. Functions access the tables as SECURITY DEFINER with a fixed search_path. Only the owner may
-- change a table.

-- CREATE OR REPLACE FUNCTION leaves a function with other parameters in place, which would make the name ambiguous in tables/roles.sql,
-- and in calls: the one that this transaction made stays.
DO $rowpost$
DECLARE
    v_old regprocedure;
BEGIN
    FOR v_old IN
        SELECT o.oid::regprocedure
        FROM pg_catalog.pg_proc AS o
        WHERE o.pronamespace = 'rowpost'::regnamespace
          AND age(o.xmin) > 0
          AND EXISTS (
              SELECT FROM pg_catalog.pg_proc AS n
              WHERE n.pronamespace = o.pronamespace AND n.proname = o.proname AND n.oid <> o.oid AND age(n.xmin) <= 0
          )
    LOOP
        EXECUTE format('DROP FUNCTION %s', v_old);
    END LOOP;
END
$rowpost$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA rowpost FROM PUBLIC;
