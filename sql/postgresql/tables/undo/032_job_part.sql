-- Takes 032_job_part.sql back. The staged messages stay.
DROP TABLE IF EXISTS rowpost.job_part;
