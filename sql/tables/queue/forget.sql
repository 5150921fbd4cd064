-- Removes the queue's procedures and its registry entry. Its table and its messages stay.
{drop_queue_procedures}
GO
EXEC rowpost.unregister_queue @queue_name = N'{queue_name}';
GO
