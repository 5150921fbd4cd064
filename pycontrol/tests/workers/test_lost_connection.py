"""A message whose handler ends the connection on which it runs is counted, and leaves its queue after its attempts.

A real worker, in a thread. The server ends the session, as it does when it is out of memory or when an administrator ends a query.
"""

import sys
import threading
from collections import Counter
from multiprocessing import Pipe

import pytest

from rowpost.database.connection import Connection, connect_url
from rowpost.errors import DatabaseUnavailable, PasswordUnavailable
from rowpost.recoverability.lost_sessions import check_attempt
from rowpost.settings import password
from rowpost.settings.password import PasswordSource
from rowpost.settings.worker import FunctionRetries
from rowpost.transport.queue import Queue
from rowpost.wire.message import decode_headers
from rowpost.workers.circuit_breaker import CircuitBreaker
from rowpost.workers.protocol import Assignment, Exit
from rowpost.workers.worker.channel import PipeChannel
from rowpost.workers.worker.worker import Worker
from tests.support.pipelines import pipeline_with
from tests.support.workers import eventually

calls: Counter[bytes] = Counter()
#: another session, by which a handler ends its own one
beside: list[Connection] = []
IDLE_MS = 150


def handler(message, connection):
    """End the session of every message that is called bad."""
    calls[message.body] += 1
    if message.body == b"bad":
        connection.execute("SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())")


def unheard(message, connection):
    """The same, by another session: only the commit shows it."""
    calls[message.body] += 1
    if message.body == b"bad":
        end(connection.info.backend_pid)


def unheard_failing(message, connection):
    """The same, and raise an error that has nothing to do with it."""
    unheard(message, connection)
    if message.body == b"bad":
        raise ValueError("no such order")


def once(message, connection):
    """End the session of the message that is called bad, the first time."""
    calls[message.body] += 1
    if message.body == b"bad" and calls[b"bad"] == 1:
        end(connection.info.backend_pid)


def idle(message, connection):
    """Work on every message that is called bad until the server has ended the session."""
    calls[message.body] += 1
    if message.body == b"bad":
        pid = connection.info.backend_pid
        eventually(lambda: not alive(pid), "the server ends the session")


def idle_with_settings(message, connection):
    """The same, after a change of the session, which is undone after the handler."""
    connection.execute("SET LOCAL work_mem = '1MB'; SET extra_float_digits = 1")
    idle(message, connection)


def sessions(pid):
    return (
        beside[0]
        .driver_connection.execute("SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE pid = %s", (pid,))
        .fetchone()[0]
    )


def alive(pid):
    return sessions(pid) > 0


def end(pid):
    beside[0].driver_connection.execute("SELECT pg_catalog.pg_terminate_backend(%s)", (pid,))
    eventually(lambda: not alive(pid), "the session has ended")


@pytest.fixture
def work(queue, sql, target, open_database):
    """Start a worker, and stop it when the queue is empty."""
    if target.settings.engine != "postgresql":
        pytest.skip("the handler ends its session by pg_terminate_backend")
    sql.empty("error")
    sql.run("DELETE FROM rowpost.failure")
    calls.clear()
    beside[:] = [open_database()]

    def run(batch, handler=handler, settings="", wait=0.01):
        ours, theirs = Pipe()
        assignment = Assignment(
            settings=target.settings, queue="Sales", number=1, handler=f"{__name__}:{handler.__name__}", retries=FunctionRetries(3), error_queue="error",
            receive=True, polls=True, breaker=CircuitBreaker(first_wait=wait, armed_wait=wait, triggered_wait=wait), batch=batch,
        )  # fmt: skip
        worker = Worker(assignment, PipeChannel(theirs), connect=lambda *_, **__: connect(settings))
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        try:
            eventually(lambda: sql.run(f"SELECT count(*) FROM {sql.table('Sales')}")[0][0] == 0, "the queue is empty")
        finally:
            ours.send(Exit())
            thread.join(20)
        assert not thread.is_alive()

    def connect(settings):
        return connect_url("postgresql", with_options(target.settings.url, settings)) if settings else target.connect()

    return run


def with_options(url, settings):
    return f"{url}{'&' if '?' in url else '?'}options=-c%20{settings.replace('=', '%3D')}"


@pytest.mark.parametrize("batch", ["off", 10])
def test_a_message_that_ends_its_connection_goes_to_the_error_queue_after_its_attempts(
    queue, work, database, sql, batch
):
    for body in (b"good 1", b"bad", b"good 2"):
        queue.send(body, {"Shop.Note": "kept"})

    work(batch)

    (failed,) = Queue("error", database).browse(10)
    headers = decode_headers(failed.raw_headers)
    assert (failed.body, headers["Shop.Note"], calls[b"bad"]) == (b"bad", "kept", 3)
    assert "connection was lost" in headers["NServiceBus.ExceptionInfo.Message"]
    assert calls[b"good 2"] == 1
    assert sql.run("SELECT count(*) FROM rowpost.failure")[0][0] == 0


def test_a_connection_that_had_worked_is_replaced_at_once_when_it_is_lost(queue, work):
    for body in (b"good 1", b"bad", b"good 2"):
        queue.send(body)

    work("off", once, wait=3600.0)

    assert calls == {b"good 1": 1, b"bad": 2, b"good 2": 1}


@pytest.mark.parametrize("batch", ["off", 10])
@pytest.mark.parametrize(
    ("handler", "settings", "words"),
    [
        (unheard, "", "terminating connection due to administrator command"),
        (unheard_failing, "", "no such order"),
        (idle, f"idle_in_transaction_session_timeout={IDLE_MS}ms", "The setting idle_in_transaction_session_timeout"),
        (idle_with_settings, f"idle_in_transaction_session_timeout={IDLE_MS}ms", "idle-in-transaction timeout"),
        (idle, f"transaction_timeout={IDLE_MS}ms", "The setting transaction_timeout"),
    ],
    ids=["killed", "killed, and raises", "idle", "idle, with settings", "transaction timeout"],
)
def test_a_message_whose_session_has_ended_when_it_is_committed_goes_to_the_error_queue_too(
    queue, work, database, sql, batch, handler, settings, words
):
    if (
        "transaction_timeout" in settings
        and sql.value("SELECT current_setting('server_version_num')::integer") < 170_000
    ):
        pytest.skip("transaction_timeout is a setting of PostgreSQL 17")
    for body in (b"good 1", b"bad", b"good 2"):
        queue.send(body)

    work(batch, handler, settings)

    (failed,) = Queue("error", database).browse(10)
    assert (failed.body, calls[b"good 2"] >= 1) == (b"bad", True)
    assert calls[b"bad"] in ([3] if batch == "off" else [3, 4])  # in a batch, nobody knows at first whose fault it is
    assert words in decode_headers(failed.raw_headers)["NServiceBus.ExceptionInfo.Message"]
    assert sql.run("SELECT count(*) FROM rowpost.failure")[0][0] == 0


# ------------------------------------------------------------------ what is no attempt
def pipeline_of(target):
    if target.settings.engine != "postgresql":
        pytest.skip("a session is ended by pg_terminate_backend")
    database = target.connect()
    return pipeline_with(database, "Sales", lambda message, connection: None, attempts=1, reconnect=target.connect)


def test_a_commit_that_was_carried_out_is_no_attempt_although_its_reply_was_lost(
    queue, target, open_database, sql, monkeypatch
):
    pipeline = pipeline_of(target)
    sql.empty("error")
    beside[:] = [open_database()]
    commit, pid = pipeline.database.commit, pipeline.database.driver_connection.info.backend_pid

    def lose_the_reply():
        commit()
        end(pid)
        pipeline.database.call("list_queues")

    monkeypatch.setattr(pipeline.database, "commit", lose_the_reply)
    queue.send(b"good")
    with pytest.raises(DatabaseUnavailable):
        pipeline.process_one()

    assert queue.peek() == 0
    assert (Queue("error", queue.database).peek(), sql.run("SELECT count(*) FROM rowpost.failure")[0][0]) == (0, 0)


def test_a_server_that_was_started_while_a_handler_worked_is_no_attempt(queue, target):
    error, long_ago = DatabaseUnavailable("the server was stopped"), 1e9
    if target.settings.engine != "postgresql":
        pytest.skip("Azure SQL does not say when it was started")
    queue.send(b"good")
    (row_version,) = [each.row_version for each in queue.browse(1)]

    with target.connect() as other:
        with pytest.raises(DatabaseUnavailable) as raised:
            check_attempt(other, "Sales", row_version, error, long_ago)
        counted = check_attempt(other, "Sales", row_version, error, 0.0)

    assert (raised.value, counted) == (error, other)


def test_a_server_that_cannot_be_reached_is_no_attempt():
    error = DatabaseUnavailable("the server is down")

    with pytest.raises(DatabaseUnavailable) as raised:
        check_attempt(None, "Sales", 1, error, 0.0)

    assert raised.value is error


def test_a_worker_that_waits_for_a_password_sees_that_it_is_to_exit(target, tmp_path, monkeypatch):
    ours, theirs = Pipe()
    worker = Worker(
        Assignment(settings=target.settings, queue="Sales", handler=f"{__name__}:handler"), PipeChannel(theirs)
    )
    monkeypatch.setattr(password, "_HURRIED_LIMIT_S", 0.0)
    monkeypatch.setattr(password, "_is_asked_to_stop", lambda: worker.read_commands(0.0))
    threading.Timer(0.2, lambda: ours.send(Exit())).start()

    with pytest.raises(PasswordUnavailable, match="did not end"):
        PasswordSource(command=(sys.executable, "-c", "import time; time.sleep(3600)")).read()
