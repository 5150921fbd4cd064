"""Periodic tasks of a supervisor: each visits queues or databases in a thread of its own."""
