-- Takes 026_queue_control.sql back. Pauses and limits are gone: queues work as their environments say.
DROP TABLE IF EXISTS rowpost.queue_control;
