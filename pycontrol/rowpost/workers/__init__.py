"""Run worker processes for queues, and change their number with the load.

`supervision` is the parent process. It uses `worker` (the worker processes), `tasks` (its periodic tasks) and
`exposition` (metrics and health over HTTP). `bridge` moves messages between two databases. The modules of this folder
are the values that they share: the protocol between a supervisor and its workers, the answers of the queue monitor,
events, figures, strategies, and the circuit breaker.
"""
