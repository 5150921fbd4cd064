"""Run worker processes for queues, and change their number with the load.

`supervisor` is the parent process, `worker` the loop of each child, `pool` the workers of one queue.
"""
