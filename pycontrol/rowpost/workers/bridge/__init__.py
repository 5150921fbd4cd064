"""A bridge moves messages between the queues of two databases, each exactly once.

`headers` translates a message's headers for the other side, `mover` moves batches, `direction` repeats that in a
thread, `bridge` runs both directions, and `installation` makes the proxy queues.
"""
