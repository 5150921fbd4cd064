"""The periodic tasks of a supervisor: each processes queues or databases in a thread of its own."""
