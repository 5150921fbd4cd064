-- Drops the column of a correlation property that is no longer used, with its index. The property stays in the states.
DROP FUNCTION IF EXISTS rowpost."correlate_saga:{saga_key}";
DROP FUNCTION IF EXISTS rowpost."correlate_sagas:{saga_key}";
ALTER TABLE {saga_table} DROP COLUMN IF EXISTS "{correlation_column}";
