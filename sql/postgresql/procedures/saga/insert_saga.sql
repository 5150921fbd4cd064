CREATE OR REPLACE FUNCTION rowpost."insert_saga:{saga_key}"(
    p_id uuid,
    p_correlation_value text,
    p_data text, -- the state as JSON
    p_metadata text, -- JSON object: Originator, OriginalMessageId
    p_persistence_version text,
    p_saga_type_version text
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $rowpost$
/*
Stores a new instance, unless another message has started the same saga.
Atomicity: one INSERT in the caller's transaction.
Locking:   the new row; waits for a transaction that stores the same correlation value.
*/
BEGIN
    IF length(p_persistence_version) > 23 OR length(p_saga_type_version) > 23 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP034', MESSAGE = 'The saga cannot be stored: its two versions may have at most 23 characters each.';
    END IF;

    IF p_correlation_value IS NULL OR length(p_correlation_value) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = 'RP014', MESSAGE =
            'The saga cannot be stored: its correlation value is missing or longer than 200 characters. Use another correlation value.';
    END IF;

    INSERT INTO {saga_table}
        ("Id", "Metadata", "Data", "PersistenceVersion", "SagaTypeVersion", "Concurrency", "{correlation_column}")
    VALUES
        (p_id, p_metadata, p_data::jsonb, p_persistence_version, p_saga_type_version, 1, p_correlation_value::{correlation_type})
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'RP015', MESSAGE = 'The saga cannot be stored: another message has started it. A retry loads its state.';
    END IF;
END
$rowpost$;
