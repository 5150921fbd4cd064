-- Takes 031_job.sql back. The ledger stays.
DROP TABLE IF EXISTS rowpost.job;
GO
