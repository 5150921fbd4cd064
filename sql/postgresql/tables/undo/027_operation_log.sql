-- Takes 027_operation_log.sql back. The record of what operators did is gone.
DROP TABLE IF EXISTS rowpost.operation_log;
