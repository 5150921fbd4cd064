-- Takes 033_schedule.sql back. Nothing is sent on a schedule any more; what was sent stays.
DROP TABLE IF EXISTS rowpost.schedule;
GO
