"""A bridge moves messages between the queues of two databases, each exactly once.

`headers` says what a message looks like on the other side, `mover` moves batches, `direction` repeats that in a thread, `bridge` runs both
directions, and `installation` makes the proxy queues.
"""
