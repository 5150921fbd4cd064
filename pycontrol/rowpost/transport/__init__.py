"""Queues and what is done with them outside of a handler: send, receive, delay, move, purge, maintain."""
