-- Takes 029_supervisor.sql back. Who works is not shown any more.
DROP TABLE IF EXISTS rowpost.supervisor;
GO
