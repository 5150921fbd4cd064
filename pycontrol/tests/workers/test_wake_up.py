"""Idle supervisors that senders wake up, long before the next peek, and in spite of failures.

The peek delay is a minute here, and every deadline half of it, so that a message that arrives in time was not found by a regular peek.
"""

import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rowpost.database.connection import Connection
from rowpost.deploy.grants import grant
from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from rowpost.workers.answers import Answer, WakeUp
from rowpost.workers.supervision.monitor import QueueMonitor
from rowpost.workers.supervision.supervisor import READ_TOGETHER, Supervisor
from tests.support.logins import logins
from tests.support.wake_up import INSERT, listener, postgresql_only, wake_everybody, wake_up_requested
from tests.support.workers import Running, concurrent, eventually, running

__all__ = ["listener", "postgresql_only"]

LONG = 60.0  # seconds, the peek delay


@contextmanager
def idle(shop, handler="note", **options):
    """A supervisor that has found nothing and waits for a wake-up."""
    with shop.run(handler, **({"peek_delay": LONG} | options)) as supervisor:
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one worker")
        supervisor.until(lambda: wake_up_requested(shop.sql, shop.name), "it waits for a wake-up")
        yield supervisor


# ------------------------------------------------------------------ woken
def test_an_idle_supervisor_is_woken_by_a_message(postgresql_only, shop):
    with idle(shop) as supervisor:
        shop.queue.send(b"42")

        supervisor.until(lambda: shop.handled() == 1, "woken")


def test_it_is_woken_again_and_again(postgresql_only, shop):
    with idle(shop) as supervisor:
        for number in range(1, 6):
            shop.queue.send(b"42")
            supervisor.until(lambda number=number: shop.handled() == number, f"woken {number} times")
            supervisor.until(lambda: wake_up_requested(shop.sql, shop.name), "it waits for a wake-up again")


def test_it_is_woken_by_a_burst_and_takes_all_of_it(postgresql_only, shop):
    with idle(shop, limit=2) as supervisor:
        shop.queue.send_many([OutgoingMessage(b"42")] * 2000)

        supervisor.until(lambda: shop.handled() == 2000, "all are handled")


def test_it_is_woken_by_a_delayed_message_that_another_process_moves(postgresql_only, shop, database):
    with idle(shop) as supervisor:
        database.call("delay_message", shop.name, headers="{}", body=b"42", delay_ms=-1)
        move_due(database, shop.name)

        supervisor.until(lambda: shop.handled() == 1, "woken")


@concurrent
def test_a_message_does_not_wait_for_the_next_peek_while_a_slow_handler_runs(shop, tmp_path):
    gate, other = tmp_path / "gate", tmp_path / "other"

    with shop.run("wait_for_file", limit=2, peek_delay=LONG) as supervisor:
        supervisor.until(lambda: supervisor.workers(shop.name) == 1, "one worker")
        shop.queue.send(str(gate).encode())
        if shop.target.settings.engine == "postgresql":
            supervisor.until(lambda: running(gate) == 1, "the first is busy")
            supervisor.until(lambda: wake_up_requested(shop.sql, shop.name), "nothing else waits")
            shop.queue.send(str(other).encode())
            supervisor.until(lambda: running(other) == 1, "the second is busy too")
        gate.touch()
        other.touch()


@concurrent
def test_all_supervisors_of_a_queue_are_woken(postgresql_only, shop, tmp_path):
    gate = tmp_path / "gate"

    with idle(shop, "wait_for_file", limit=1) as first, idle(shop, "wait_for_file", limit=1):
        shop.send(2, str(gate).encode())
        first.until(lambda: running(gate) == 2, "both work")
        gate.touch()
        first.until(lambda: shop.handled() == 2, "both are handled")


def test_while_one_supervisor_is_busy_the_request_of_an_idle_one_is_renewed(postgresql_only, shop):
    """Whoever is awake takes the word back, a sleeper's too; it is given again when that one has nothing to do."""
    with idle(shop), idle(shop) as second:
        for number in range(1, 4):
            shop.queue.send(b"42")
            second.until(lambda number=number: shop.handled() == number, "one of them was woken")
            second.until(lambda: wake_up_requested(shop.sql, shop.name), "both wait for a wake-up")


def test_it_is_woken_by_a_plain_insert_of_a_login_that_may_do_nothing_else(
    postgresql_only, shop, sql, database, listener
):
    """With `wake_up: everybody`, an NServiceBus endpoint wakes it like any other sender."""
    wake_everybody(database, shop.name)
    with logins(sql, shop.target.url) as login, idle(shop) as supervisor:
        name = login.make("dotnet")
        sql.run(f'GRANT INSERT ON "{shop.name}" TO {name}')
        sender = login.open(name)
        sender.driver_connection.execute(INSERT.format(shop.name))
        sender.close()

        supervisor.until(lambda: shop.handled() == 1, "woken")
        assert listener.heard()[:1] == [shop.name]


# ------------------------------------------------------------------ what commits late
def test_a_message_of_a_sender_that_found_no_wake_up_request_is_found_soon_after_its_commit(shop, open_database):
    """It was sent while the supervisor was awake, and commits when it sleeps: nobody rings."""
    late = open_database()
    if late.engine == "postgresql":
        late.driver_connection.execute("SET rowpost.wake_up = off")

    with shop.run(peek_delay=LONG) as supervisor:
        supervisor.until(lambda: len(supervisor.seen(events.Peeked)) == 1, "it has peeked")
        shop.queue.send(b"first")
        if late.engine == "sqlserver":  # nobody rings there at all: the first look is the clock's
            supervisor.supervisor.set_limit(shop.name, 2)
        supervisor.until(lambda: shop.handled() == 1, "the first")
        late.begin()
        Queue(shop.name, late).send(b"late")
        if late.engine == "postgresql":
            supervisor.until(lambda: wake_up_requested(shop.sql, shop.name), "it waits for a wake-up")
        late.commit()

        supervisor.until(lambda: shop.handled() == 2, "the late one")


def test_a_message_that_was_rolled_back_into_the_queue_is_found_again(postgresql_only, shop, open_database):
    """Somebody else took it, and gives it back: nobody rings."""
    other = open_database()
    with idle(shop) as supervisor:
        other.driver_connection.execute("SET rowpost.wake_up = off")
        other.begin()
        Queue(shop.name, other).send(b"42")
        shop.queue.send(b"first")
        supervisor.until(lambda: shop.handled() == 1, "the first")
        other.commit()

        supervisor.until(lambda: shop.handled() == 2, "the other")


# ------------------------------------------------------------------ who hears nothing
def end_supervisors_session(sql):
    return sql.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rowpost supervisor' AND datname = current_database()"
    )


def test_a_listener_that_lost_its_connection_listens_again(postgresql_only, shop):
    with idle(shop) as supervisor:
        peeks = len(supervisor.seen(events.Peeked))
        assert end_supervisors_session(shop.sql)
        supervisor.until(lambda: len(supervisor.seen(events.Peeked)) > peeks, "it peeks with a new connection")
        supervisor.until(lambda: wake_up_requested(shop.sql, shop.name), "it waits for a wake-up again")
        shop.queue.send(b"42")

        supervisor.until(lambda: shop.handled() == 1, "woken")


def test_messages_sent_while_the_connection_was_lost_are_found_with_the_new_connection(
    postgresql_only, shop, make_queue
):
    """Also in a queue that did not look when the connection was lost."""
    other = make_queue()
    settings = shop.worked(other.name, peek_delay=LONG)
    with idle(shop, others=(settings,)) as supervisor:
        supervisor.until(lambda: wake_up_requested(shop.sql, other.name), "the other queue waits for a wake-up, too")
        shop.sql.run("SET rowpost.wake_up = off")
        for name in (shop.name, other.name):
            shop.queue.database.driver_connection.execute("SET rowpost.wake_up = off")
            Queue(name, shop.queue.database).send(b"42")
        end_supervisors_session(shop.sql)

        supervisor.until(lambda: shop.handled() == 2, "both are handled")


def test_a_supervisor_without_wake_ups_requests_none(shop, sql):
    with shop.run(wake_up=False) as supervisor:
        supervisor.until(lambda: len(supervisor.seen(events.Peeked)) > 2, "three peeks")
        told = shop.target.settings.engine == "postgresql" and wake_up_requested(sql, shop.name)
        shop.queue.send(b"42")
        supervisor.until(lambda: shop.handled() == 1, "found by a peek")

    assert not told


def test_a_login_that_may_peek_but_not_watch_peeks_and_is_warned_about_once(postgresql_only, shop, sql):
    with logins(sql, shop.target.url) as login:
        name = login.make("old")
        grant(sql.database, name, receive_from=[shop.name], send_to=["error"], tables=sql.babelfish)
        sql.run(f'REVOKE EXECUTE ON FUNCTION rowpost."watch_queue:{shop.name}" FROM {name}')
        sql.run(f"GRANT INSERT ON handled TO {name}")
        settings = shop.settings()
        with Running(replace(settings, url=login.url(name))) as supervisor:
            supervisor.until(lambda: len(supervisor.seen(events.Peeked)) > 2, "it peeks")
            shop.queue.send(b"42")
            supervisor.until(lambda: shop.handled() == 1, "handled")

        warnings = [event.text.partition(" its procedure")[0] for event in supervisor.seen(events.Warned, shop.name)]
        assert warnings.count(f"The login may peek at {shop.name} but may not call") == 1


class Pooler:
    """Stands between a client and PostgreSQL, and names another process than the one that answers, as PgBouncer does."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX) if self._server[0].startswith("/") else socket.socket()
            path = f"{self._server[0]}/.s.PGSQL.{self._server[1]}"
            server.connect(path if self._server[0].startswith("/") else self._server)
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, names: bool) -> None:
        while True:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            if not data:
                target.close()
                return
            if names:  # BackendKeyData: K, length, process, secret
                data, found = re.subn(
                    rb"(?s)(K\x00\x00\x00\x0c)....", lambda key: key[1] + b"\x00\x00\x00\x07", data, count=1
                )
                names = not found
            target.sendall(data)

    def close(self) -> None:
        self._door.close()


def test_behind_a_pooler_that_keeps_sessions_a_supervisor_is_woken(postgresql_only, shop, sql):
    info = sql.database.driver_connection.info
    pooler = Pooler(info.host, info.port)
    url = f"postgresql://{info.user}@127.0.0.1:{pooler.port}/{info.dbname}?sslmode=disable&gssencmode=disable"

    with Running(replace(shop.settings(peek_delay=LONG), url=url)) as supervisor:
        supervisor.until(lambda: wake_up_requested(sql, shop.name), "it waits for a wake-up")
        shop.queue.send(b"42")
        supervisor.until(lambda: shop.handled() == 1, "handled", LONG / 2)

    pooler.close()
    assert not wake_up_requested(sql, shop.name)


# ------------------------------------------------------------------ what it costs
class Counting:
    """Connections that count the round trips of looks."""

    def __init__(self, connect) -> None:
        self._connect, self.trips = connect, []

    def __call__(self, *arguments, **options) -> Connection:
        database = self._connect(*arguments, **options)
        call_all = database.call_all

        def counted(calls, **how):
            self.trips.append(len(calls))
            return call_all(calls, **how)

        database.call_all = counted
        return database


def test_all_queues_of_a_process_are_peeked_at_in_one_round_trip(shop, make_queue, database):
    names = [make_queue(delayed=False).name for _ in range(5)]
    counting = Counting(lambda *_, **__: shop.target.connect())
    answers = []
    settings = replace(shop.settings(), queues=tuple(QueueSettings(name) for name in names))
    Queue(names[2], database).send_many([OutgoingMessage(b"x")] * 3)
    monitor = QueueMonitor(settings, answers.append, connect=counting)
    for name in names:
        monitor.ask(name, wake_up_ttl_s=10.0)

    monitor.start()
    eventually(lambda: len(answers) >= 5, "five answers")
    monitor.stop()

    assert [answer.count for answer in answers] == [0, 0, 3, 0, 0]
    assert counting.trips == [5]


def test_a_locked_queue_does_not_hide_the_messages_of_another_one(
    shop, make_queue, open_database, sql, postgresql_only
):
    locked, other = make_queue(delayed=False), make_queue(delayed=False)
    other.send(b"x")
    answers = []

    def ask_both():
        monitor.ask(locked.name)
        monitor.ask(other.name)

    def post(answer):
        """Keep the answer; after the first two, ask again in the monitor's own thread, which then takes both together."""
        answers.append(answer)
        if len(answers) == 2:
            ask_both()

    settings = replace(shop.settings(), queues=(QueueSettings(locked.name), QueueSettings(other.name)))
    monitor = QueueMonitor(settings, post)
    holder = open_database()
    holder.begin()
    holder.driver_connection.execute(f"LOCK TABLE {sql.table(locked.name)}")
    ask_both()
    try:
        monitor.start()
        eventually(lambda: len(answers) >= 4, "answers while the table is locked")
    finally:
        holder.rollback()
    monitor.ask(locked.name)
    eventually(lambda: len(answers) >= 5, "an answer after the lock")
    monitor.stop()

    found = [(a.queue, a.count, type(a.error).__name__) for a in answers]
    # the first time in the same round trip, then apart
    assert found[:2] == [(locked.name, 0, "LockTimeout"), (other.name, 1, "NoneType")]
    assert found[2:4] == [(other.name, 1, "NoneType"), (locked.name, 0, "LockTimeout")]
    assert found[4] == (locked.name, 0, "NoneType")


def test_a_queue_that_cannot_be_peeked_at_does_not_prevent_the_peeks_of_others(shop, make_queue):
    answers = []
    settings = replace(shop.settings(), queues=(QueueSettings(shop.name), QueueSettings("Nowhere")))
    monitor = QueueMonitor(settings, answers.append)
    for name in (shop.name, "Nowhere", "error"):
        monitor.ask(name)

    monitor.start()
    eventually(lambda: len(answers) >= 3, "three answers")
    monitor.stop()

    assert [(a.queue, type(a.error).__name__) for a in answers] == [
        (shop.name, "NoneType"),
        ("Nowhere", "QueueNotFound"),
        ("error", "NoneType"),
    ]


@pytest.mark.parametrize("woken", ["Queue999", None])
def test_a_wake_up_does_not_wait_behind_the_answers_of_a_thousand_queues(woken):
    """Only the woken queue's own answer, which was counted before, is read first."""
    names = [f"Queue{number:03}" for number in range(1000)]
    seen = []
    supervisor = Supervisor(
        Settings(queues=tuple(QueueSettings(name, worker=WorkerSettings("operator:eq")) for name in names)), seen.append
    )
    for name in names:
        supervisor._post(Answer(name))
    supervisor._post(WakeUp(woken))
    supervisor._tasks = SimpleNamespace(move_delayed=lambda *_: None)

    supervisor._open_inbox(0.0)
    woken_pools = [name for name, pool in supervisor._pools.by_name.items() if pool._strategy.receiving]
    read = [event.queue for event in seen if isinstance(event, events.Peeked)]

    assert woken_pools == (names if woken is None else [woken])
    assert read == (names if woken is None else [woken, *names[:READ_TOGETHER]])
    for _ in range(1000 // READ_TOGETHER + 1):
        supervisor._open_inbox(0.0)
    assert sorted(event.queue for event in seen if isinstance(event, events.Peeked)) == names
