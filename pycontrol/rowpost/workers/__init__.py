"""Run worker processes for queues, and change their number with the load.

`supervisor` is the parent process, `worker` the loop of each child process, and `pool` manages the workers of one queue.
`monitor` peeks at the queues and receives wake-ups; `tasks` are the periodic tasks of a supervisor.
"""
