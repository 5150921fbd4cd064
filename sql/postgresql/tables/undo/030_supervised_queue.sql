-- Takes 030_supervised_queue.sql back. Limits that supervisors share are not divided any more.
DROP TABLE IF EXISTS rowpost.supervised_queue;
