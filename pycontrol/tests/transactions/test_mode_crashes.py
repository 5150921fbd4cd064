"""Processes that are killed at each step of handling a message, in every transaction mode."""

import os
import random
import select
import signal
import socket
import threading
from collections import Counter

import psycopg
import pytest

from rowpost.database.connection import connect_url
from rowpost.errors import DatabaseUnavailable
from rowpost.recoverability.outcome import Kind
from rowpost.transactions.recovery import list_in_doubt, recover
from rowpost.transport.queue import Queue
from tests.support.crashing import TYPE, at_step, endpoint_of, pipeline_of, spawn_worker
from tests.support.workers import eventually

STEPS = {
    "none": ["received", "in handler", "handled", "committed"],
    "receive_only": ["received", "in handler", "handled", "sent", "before commit", "committed"],
    "sends_atomic_with_receive": ["received", "in handler", "handled", "before commit", "committed"],
    "transaction_scope": ["received", "in handler", "handled", "before commit", "committed"],
}
TWO_PHASE = [
    "received", "in handler", "enlisted shop", "enlisted books", "handled", "recorded",
    "before prepare shop", "after prepare shop", "before prepare books", "after prepare books",
    "before commit", "committed", "after commit shop", "after commit books", "before forget",
]  # fmt: skip
DECIDED = set(TWO_PHASE[TWO_PHASE.index("committed") :])


class Business:
    """The queue under test, and what became of its orders everywhere."""

    def __init__(self, target, queue, sql, participants):
        self.target, self.queue, self.sql, self.participants = target, queue, sql, participants

    def order(self, *numbers):
        for number in numbers:
            self.queue.send(b'{"Number":%d}' % number, {"NServiceBus.EnclosedMessageTypes": TYPE})

    def connect(self):
        return connect_url(self.target.settings.engine, self.target.url, "rowpost tests modes")

    def crash(self, mode, step):
        """A worker that dies at that step."""
        process = spawn_worker(self.target, self.queue.name, mode, self.participants, step)
        assert process.wait(60) == -signal.SIGKILL

    def work(self, mode, **options):
        """A fresh worker: recovers, then works until nothing is left."""
        with self.connect() as database:
            pipeline = pipeline_of(database, endpoint_of(self.queue.name, mode, self.participants), **options)

            def done():
                pipeline.recover()
                while pipeline.process_one().kind is not Kind.EMPTY:
                    pass
                return self.queue.peek() == 0 and not self.in_doubt()

            eventually(done, "the queue is empty and nothing in doubt")
            pipeline.close()

    def in_doubt(self):
        database = self.queue.database
        return list_in_doubt(database, self.two_phase)[0] + database.call("list_decisions")

    @property
    def two_phase(self):
        return self.participants if self.target.settings.engine == "postgresql" else {}

    def written(self):
        """Orders in the queue's own database."""
        return Counter(row[0] for row in self.sql.run("SELECT number FROM business"))

    def elsewhere(self):
        """Orders in each participant's."""
        found = []
        for place in self.participants.values():
            if "://" in place:
                with connect_url("postgresql", place) as database:
                    rows = database.driver_connection.execute("SELECT number FROM business").fetchall()
            else:
                rows = self.sql.run(f"SELECT number FROM {place}.dbo.business")
            found.append(Counter(row[0] for row in rows))
        return found

    def sent(self):
        rows = Queue("Billing", self.queue.database).browse(1000)
        return Counter(int(message.body.decode()[10:-1]) for message in rows)


@pytest.fixture(scope="module")
def places(target, lasting_database):
    """Two more databases of the same server, each with the table `business`."""
    label = "sqlserver" if target.settings.engine == "sqlserver" else target.label
    made = {}
    for name in ("shop", "books"):
        url = lasting_database(label)
        with connect_url(target.settings.engine, url) as database:
            database.driver_connection.execute("CREATE TABLE business (number integer NOT NULL)")
        made[name] = url if label != "sqlserver" else url.rpartition("Database=")[2]
    return made


@pytest.fixture
def business(target, make_queue, sql, places):
    """Makes what a test works with; tables are empty."""
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    for queue in ("Billing", "error"):
        sql.empty(queue)

    def make(mode):
        made = Business(target, make_queue(), sql, places if mode == "transaction_scope" else {})
        for place in made.participants.values():
            if "://" in place:
                with connect_url("postgresql", place) as database:
                    database.driver_connection.execute("DELETE FROM business")
            else:
                sql.run(f"DELETE FROM {place}.dbo.business")
        return made

    return make


@pytest.fixture
def needs_two_phase(target):
    """For two-phase commit, which rowpost itself does on PostgreSQL only."""
    if target.settings.engine != "postgresql":
        pytest.skip("one SQL Server needs no second connection; across servers the DTC coordinates")
    with target.connect() as database:
        if database.driver_connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
            pytest.skip("max_prepared_transactions is 0 on this server")


def once(business):
    """Every order exactly once, everywhere."""
    numbers = business.written()
    return (
        set(numbers.values()) == {1} and business.sent() == numbers and all(c == numbers for c in business.elsewhere())
    )


# ------------------------------------------------------------------ one crash at every step
@pytest.mark.parametrize("step", STEPS["sends_atomic_with_receive"])
@pytest.mark.promise("sends-are-atomic-when-killed")
def test_sends_atomic_killed_at_any_step_repeats_and_loses_nothing(business, step):
    shop = business("sends_atomic_with_receive")
    shop.order(1, 2, 3)

    shop.crash("sends_atomic_with_receive", step)
    shop.work("sends_atomic_with_receive")

    assert once(shop)
    assert len(shop.written()) == 3


@pytest.mark.parametrize("step", STEPS["receive_only"])
@pytest.mark.promise("receive-only-may-send-twice")
def test_receive_only_killed_at_any_step_loses_nothing_and_may_send_twice(business, step):
    shop = business("receive_only")
    shop.order(1, 2, 3)

    shop.crash("receive_only", step)
    shop.work("receive_only")

    assert shop.written() == Counter([1, 2, 3])
    assert shop.sent() == Counter([1, 2, 3] + ([1] if step in ("sent", "before commit") else []))


@pytest.mark.parametrize("step", STEPS["none"])
@pytest.mark.promise("none-loses-on-failure")
def test_none_killed_at_any_step_handles_at_most_once(business, step):
    shop = business("none")
    shop.order(1, 2, 3)

    shop.crash("none", step)
    shop.work("none")

    assert shop.written() == Counter([2, 3] if step == "received" else [1, 2, 3])
    assert shop.sent() == Counter([1, 2, 3] if step == "committed" else [2, 3])


@pytest.mark.parametrize("step", TWO_PHASE)
@pytest.mark.promise("scope-spans-databases")
def test_a_scope_over_three_databases_killed_at_any_step_repeats_and_loses_nothing(business, step, needs_two_phase):
    shop = business("transaction_scope")
    shop.order(1, 2, 3)

    shop.crash("transaction_scope", step)
    decided = shop.written() != Counter()
    shop.work("transaction_scope")

    assert decided == (step in DECIDED)
    assert once(shop)
    assert len(shop.written()) == 3
    assert shop.in_doubt() == []


@pytest.mark.parametrize("step", STEPS["transaction_scope"])
@pytest.mark.promise("scope-spans-databases")
def test_a_scope_on_one_server_killed_at_any_step_repeats_and_loses_nothing(business, target, step):
    if target.settings.engine != "sqlserver":
        pytest.skip("databases of one PostgreSQL need two-phase commit: the test above")
    shop = business("transaction_scope")
    shop.order(1, 2, 3)

    shop.crash("transaction_scope", step)
    shop.work("transaction_scope")

    assert once(shop)
    assert len(shop.written()) == 3


# ------------------------------------------------------------------ coordinators that live, and connections that do not
def test_recovery_leaves_a_coordinator_alone_that_still_runs(business, needs_two_phase):
    shop = business("transaction_scope")
    shop.order(1)
    seen = []
    with shop.connect() as database, shop.connect() as aside:
        step = at_step("before commit", lambda: seen.append((recover(aside, shop.participants), shop.in_doubt())))
        pipeline = pipeline_of(
            database, endpoint_of(shop.queue.name, "transaction_scope", shop.participants), step=step
        )
        outcome = pipeline.process_one()
        pipeline.process_one()
        pipeline.close()

    ((recovered, in_doubt),) = seen
    assert (recovered.committed, recovered.rolled_back, len(recovered.left)) == ([], [], 2)
    assert {each.state for each in in_doubt} == {"running"}
    assert outcome.kind is Kind.HANDLED
    assert once(shop)
    assert shop.in_doubt() == []


def test_a_coordinator_does_not_mind_that_recovery_commits_before_it(business, needs_two_phase):
    shop = business("transaction_scope")
    shop.order(1, 2)
    seen = []
    with shop.connect() as database, shop.connect() as aside:
        step = at_step("committed", lambda: seen.append(recover(aside, shop.participants)))
        pipeline = pipeline_of(
            database, endpoint_of(shop.queue.name, "transaction_scope", shop.participants), step=step
        )
        outcomes = [pipeline.process_one().kind for _ in range(3)]
        pipeline.close()

    assert [len(each.committed) for each in seen] == [2, 2]
    assert outcomes == [Kind.HANDLED, Kind.HANDLED, Kind.EMPTY]
    assert once(shop)
    assert shop.in_doubt() == []


@pytest.mark.parametrize("step", ["recorded", "after prepare shop", "before commit"])
def test_a_connection_lost_before_the_decision_leaves_nothing_and_the_message_is_handled_again(
    business, step, needs_two_phase, sql
):
    shop = business("transaction_scope")
    shop.order(1)
    with shop.connect() as database:
        pid = database.driver_connection.info.backend_pid
        lose = at_step(step, lambda: sql.run("SELECT pg_terminate_backend(?, 5000)", pid))
        pipeline = pipeline_of(
            database, endpoint_of(shop.queue.name, "transaction_scope", shop.participants), step=lose
        )
        outcome = pipeline.process_one()
        pipeline.close()
    before = shop.elsewhere()

    shop.work("transaction_scope")

    assert (outcome.kind, before) == (
        Kind.FAILED,
        [Counter(), Counter()],
    )  # the message itself may have ended the session
    assert once(shop)


def test_a_commit_whose_answer_is_lost_is_carried_out_everywhere_once(business, needs_two_phase, tmp_path):
    shop = business("transaction_scope")
    shop.order(1)
    with Wire(tmp_path, shop.target.url) as wire, connect_url("postgresql", wire.url) as database:
        lose = at_step("before commit", wire.swallow_the_commits_answer)
        pipeline = pipeline_of(
            database, endpoint_of(shop.queue.name, "transaction_scope", shop.participants), step=lose
        )
        with pytest.raises(DatabaseUnavailable):
            pipeline.process_one()
        pipeline.close()
    before = (shop.written(), shop.elsewhere())

    shop.work("transaction_scope")

    assert before == (Counter([1]), [Counter(), Counter()])
    assert once(shop)
    assert shop.in_doubt() == []


class Wire:
    """A connection to the server through this process, which can swallow a COMMIT's answer and then be cut."""

    def __init__(self, folder, url):
        parts = psycopg.conninfo.conninfo_to_dict(url)
        host, port = str(parts.get("host", "/var/run/postgresql")), str(parts.get("port", 5432))
        self._server = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._swallows = False
        self.url = psycopg.conninfo.make_conninfo(
            url, host=str(folder), port=5432, sslmode="disable", gssencmode="disable"
        )
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.close()

    def swallow_the_commits_answer(self):
        self._swallows = True

    def _carry(self):
        client, _ = self._listener.accept()
        with client, socket.socket(socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET) as server:
            server.connect(self._server)
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(65536)
                    if not data or (end is server and self._swallows and b"COMMIT\0" in data):
                        return
                    (server if end is client else client).sendall(data)


def lose_participant(sql, name, places):
    """Ends every connection of pipelines to a participant."""
    database = places[name].partition("?")[0].rpartition("/")[2]
    sql.run(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = ? AND application_name LIKE 'rowpost participant%'",
        database,
    )


@pytest.mark.parametrize("step", ["handled", "after prepare shop", "before prepare books"])
def test_a_participant_lost_before_the_decision_undoes_everything_and_the_message_is_tried_again(
    business, step, needs_two_phase, sql, places
):
    shop = business("transaction_scope")
    shop.order(1)
    with shop.connect() as database:
        lost = []
        step = at_step(step, lambda: lost or lost.append(lose_participant(sql, "books", places)))
        pipeline = pipeline_of(
            database, endpoint_of(shop.queue.name, "transaction_scope", shop.participants), step=step
        )
        outcomes = [pipeline.process_one().kind for _ in range(3)]
        pipeline.close()

    assert outcomes == [Kind.FAILED, Kind.HANDLED, Kind.EMPTY]
    assert once(shop)
    assert shop.in_doubt() == []


def test_a_participant_lost_after_the_decision_commits_when_it_is_back(business, needs_two_phase, sql, places):
    shop = business("transaction_scope")
    shop.order(1)
    with shop.connect() as database:
        step = at_step("committed", lambda: lose_participant(sql, "books", places))
        pipeline = pipeline_of(
            database, endpoint_of(shop.queue.name, "transaction_scope", shop.participants), step=step
        )
        first, (_, late) = pipeline.process_one(), shop.elsewhere()
        decided = [each.state for each in list_in_doubt(shop.queue.database, shop.participants)[0]]
        second = pipeline.process_one()
        pipeline.close()

    assert (first.kind, second.kind) == (Kind.HANDLED, Kind.EMPTY)
    assert (late, decided) == (Counter(), ["decided"])
    assert once(shop)
    assert shop.in_doubt() == []


def test_transactions_of_another_queues_database_are_shown_and_never_touched(business, needs_two_phase, places):
    shop = business("transaction_scope")
    with connect_url("postgresql", places["shop"]) as other:
        other.driver_connection.execute("BEGIN")
        other.driver_connection.execute("PREPARE TRANSACTION 'rowpost_0123456789ab_x.1'")
        recovered = recover(shop.queue.database, shop.participants)
        found, _ = list_in_doubt(shop.queue.database, shop.participants)
        other.driver_connection.execute("ROLLBACK PREPARED 'rowpost_0123456789ab_x.1'")

    assert (recovered.committed, recovered.rolled_back) == ([], [])
    assert [each.state for each in found] == ["foreign"]


# ------------------------------------------------------------------ many at once
@pytest.mark.promise("scope-spans-databases")
def test_workers_killed_at_random_while_recovery_runs_agree_everywhere(business, needs_two_phase):
    shop = business("transaction_scope")
    count, kills, dice = 150, 12, random.Random(2026)
    shop.order(*range(count))
    ended = threading.Event()

    def keep_recovering():
        with shop.connect() as database:
            while not ended.wait(0.02):
                recover(database, shop.participants)

    recovering = threading.Thread(target=keep_recovering)
    recovering.start()
    workers = [
        spawn_worker(shop.target, shop.queue.name, "transaction_scope", shop.participants, None) for _ in range(3)
    ]
    for kill in range(kills):
        eventually(lambda kill=kill: sum(shop.written().values()) >= kill * count // 20, "some progress")
        victim = dice.choice(workers)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        workers.remove(victim)
        workers.append(spawn_worker(shop.target, shop.queue.name, "transaction_scope", shop.participants, None))
    codes = [worker.wait(60) for worker in workers]
    ended.set()
    recovering.join()
    shop.work("transaction_scope")

    assert codes == [0, 0, 0]
    assert len(shop.written()) == count
    assert once(shop)
    assert shop.in_doubt() == []
