-- If a supervisor waits for messages of this queue, the commit notifies it. Otherwise nothing is notified, because NOTIFY
-- makes commits wait for one another. No function, because a call would cost every send.
IF pg_sequence_last_value(to_regclass('rowpost."waiters:{queue_key}"')) > extract(epoch FROM clock_timestamp()) * 1000
   AND current_setting('rowpost.wake_up', true) IS DISTINCT FROM 'off' THEN
    PERFORM pg_notify('rowpost', '{queue_key}');
END IF;
