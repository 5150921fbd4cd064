"""A message whose handler ends the connection on which it runs is counted, and leaves its queue after its attempts.

A real worker, in a thread. The server ends the session, as it does when it is out of memory or when an administrator ends a query.
"""

import threading
from collections import Counter
from multiprocessing import Pipe

import pytest

from rowpost.transport.queue import Queue
from rowpost.wire.message import decode_headers
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.protocol import Assignment, Exit
from rowpost.workers.worker import Worker
from tests.support.workers import eventually

calls: Counter[bytes] = Counter()


def handler(message, connection):
    """End the session of every message that is called bad."""
    calls[message.body] += 1
    if message.body == b"bad":
        connection.execute("SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())")


@pytest.fixture
def work(queue, sql, target):
    """Start a worker, and stop it when the queue is empty."""
    if target.settings.engine != "postgresql":
        pytest.skip("the handler ends its session by pg_terminate_backend")
    sql.empty("error")
    sql.run("DELETE FROM rowpost.failure")
    calls.clear()

    def run(batch):
        ours, theirs = Pipe()
        assignment = Assignment(
            settings=target.settings, queue="Sales", number=1, handler=f"{__name__}:handler", attempts=3, error_queue="error",
            receive=True, polls=True, breaker=CircuitBreaker(armed_wait=0.01, triggered_wait=0.01), batch=batch,
        )  # fmt: skip
        worker = Worker(assignment, theirs, connect=lambda *_, **__: target.connect())
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        try:
            eventually(lambda: sql.run(f"SELECT count(*) FROM {sql.table('Sales')}")[0][0] == 0, "the queue is empty")
        finally:
            ours.send(Exit())
            thread.join(20)
        assert not thread.is_alive()

    return run


@pytest.mark.parametrize("batch", ["off", 10])
def test_a_message_that_ends_its_connection_goes_to_the_error_queue_after_its_attempts(queue, work, database, sql, batch):
    for body in (b"good 1", b"bad", b"good 2"):
        queue.send(body, {"Shop.Note": "kept"})

    work(batch)

    (failed,) = Queue("error", database).browse(10)
    headers = decode_headers(failed.raw_headers)
    assert (failed.body, headers["Shop.Note"], calls[b"bad"]) == (b"bad", "kept", 3)
    assert "connection was lost" in headers["NServiceBus.ExceptionInfo.Message"]
    assert calls[b"good 2"] == 1
    assert sql.run("SELECT count(*) FROM rowpost.failure")[0][0] == 0
