-- What operators and readers may run on this saga. Endpoints are granted one by one: rowpost queue grant.
DO $rowpost$
BEGIN
    IF to_regproc('rowpost."load_saga:{saga_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."load_saga:{saga_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."load_saga:{saga_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."insert_saga:{saga_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."insert_saga:{saga_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."insert_saga:{saga_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."update_saga:{saga_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."update_saga:{saga_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."update_saga:{saga_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."complete_saga:{saga_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."complete_saga:{saga_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."complete_saga:{saga_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."correlate_saga:{saga_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."correlate_saga:{saga_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."correlate_saga:{saga_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."correlate_sagas:{saga_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."correlate_sagas:{saga_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."correlate_sagas:{saga_key}" TO rowpost_operator;
    END IF;
    IF to_regproc('rowpost."list_sagas:{saga_key}"') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION rowpost."list_sagas:{saga_key}" FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION rowpost."list_sagas:{saga_key}" TO rowpost_operator, rowpost_reader;
    END IF;
END
$rowpost$;
