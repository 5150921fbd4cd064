-- Drops the column of a correlation property that is no longer used. The property stays in the states.
DROP PROCEDURE IF EXISTS rowpost.[correlate_saga:{saga_key}];
DROP PROCEDURE IF EXISTS rowpost.[correlate_sagas:{saga_key}];
DROP INDEX IF EXISTS [Index_{correlation_column}] ON {saga_table};
ALTER TABLE {saga_table} DROP COLUMN IF EXISTS [{correlation_column}];
GO
