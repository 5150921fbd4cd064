"""Sagas for tests, and sessions that compete for them. Worker processes import this module."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import business_settings, plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.outbox.declaration import Outbox
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import ConflictPolicy, Saga, handles, starts
from rowpost.settings.databases import OutboxSettings
from rowpost.settings.engine import engine_of
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.probe import probe_for
from tests.support.schema import named
from tests.support.workers import DEADLINE, eventually

KINDS = ("pessimistic", "optimistic")


@message_type("Ledger.Open")
@dataclass(frozen=True)
class Open:
    account: str
    amount: int = 0
    gate: str = ""


@message_type("Ledger.Add")
@dataclass(frozen=True)
class Add:
    account: str
    amount: int = 1
    gate: str = ""


@message_type("Ledger.Close")
@dataclass(frozen=True)
class Close:
    account: str
    gate: str = ""


@message_type("Ledger.Noted")
@dataclass(frozen=True)
class Noted:
    account: str
    what: str


@message_type("Ledger.Nudge")
@dataclass(frozen=True)
class Nudge:
    gate: str = ""


@dataclass
class LedgerState:
    account: str
    total: int = 0
    seen: list[int] = field(default_factory=list)


#: additional work of a handler, by the message's gate; called with the saga and its context
GATES: dict[str, Callable] = {}


def make_ledger(concurrency: str, table: str, **options) -> type[Saga]:
    """Return a saga that adds up amounts, and records each change in the queue audit."""

    class Ledger(
        Saga[LedgerState],
        correlate={Open: "account", Add: "account", Close: "account"},
        concurrency=concurrency,
        table=table,
        **options,
    ):
        @starts(Open)
        def open(self, message, context):
            self._add(message, context)

        @handles(Add)
        def add(self, message, context):
            self._add(message, context)

        @handles(Close)
        def close(self, message, context):
            GATES.get(message.gate, _nothing)(self, context)
            context.send(Noted(self.state.account, "closed"), to="audit")
            self.complete()

        @handles(Nudge)
        def nudged(self, message, context):
            GATES.get(message.gate, _nothing)(self, context)
            context.send(Noted(self.state.account, "nudged"), to="audit")

        def _add(self, message, context):
            self.state.total += message.amount
            self.state.seen.append(message.amount)
            GATES.get(message.gate, _nothing)(self, context)
            context.send(Noted(self.state.account, f"total {self.state.total}"), to="audit")

    return Ledger


def _nothing(saga, context):
    pass


def make_endpoint(saga: type[Saga], name: str = "Sales", **options) -> Endpoint:
    endpoint = Endpoint(name, **({"recoverability": Recoverability(immediate_retries=5, delayed_retries=0)} | options))
    endpoint.saga(saga)
    return endpoint


_deployed: dict[str, set] = {}


def deploy_to_business(target, endpoint: Endpoint) -> None:
    """Create the tables of its sagas in the business database of its outbox, once."""
    url = endpoint.outbox.url
    done = _deployed.setdefault(url, set())
    if set(endpoint.sagas) <= done:
        return
    done |= set(endpoint.sagas)
    settings = replace(target.settings, sagas=endpoint.sagas)
    with connect_url(engine_of(url), url) as business:
        apply(business, plan(business_settings(settings, OutboxSettings(endpoint.outbox.database, url))))


def deploy(target, *endpoints: Endpoint) -> None:
    """Create the tables of their sagas, once."""
    done = _deployed.setdefault(target.url, set())
    sagas = tuple(saga for endpoint in endpoints for saga in endpoint.sagas)
    if set(sagas) <= done:
        return
    done |= set(sagas)
    with target.connect() as database:
        apply(
            database,
            plan(replace(target.settings, sagas=tuple(replace(each, name=named(each.name)) for each in sagas))),
        )


class Desk:
    """An endpoint Sales with one saga, whose sessions process one message each on request, also in threads.

    Each session has a separate queue, so that receivers never wait for each other. With `outbox`, the URL of a business
    database, the endpoint has an outbox there.
    """

    QUEUES = ("Sales", "Billing")

    def __init__(self, target, sql, saga: type[Saga], *, fresh: bool = True, outbox: str = "", **options) -> None:
        self.target, self.sql, self.saga = target, sql, saga
        if outbox:
            options |= {"outbox": Outbox("business", url=outbox), "transaction_mode": "receive_only"}
        self.endpoint = make_endpoint(saga, **options)
        (deploy_to_business if outbox else deploy)(target, self.endpoint)
        self.table = self.endpoint.sagas[0].name
        self.database = target.connect()
        #: the connection to the database of the sagas
        self.states = connect_url(engine_of(outbox), outbox) if outbox else self.database
        self.pipelines = {}
        for name in (*self.QUEUES, "audit", "error"):
            sql.empty(name)
        if fresh:
            states = probe_for(self.states, babelfish=target.babelfish)
            states.run(f"DELETE FROM {states.table(self.table)}")

    def send(self, message, queue: str = "Sales", **headers) -> None:
        with self.endpoint.open(self.database) as bus:
            bus.send(message, to=queue, headers=headers)

    def work(self, queue: str = "Sales"):
        """Process one message in this thread; return its outcome."""
        if queue not in self.pipelines:
            database = self.target.connect()
            self.pipelines[queue] = Pipeline(database, queue, self.endpoint, reconnect=self.target.connect)
        return self.pipelines[queue].process_one()

    def handle(self, message, **headers):
        """Send and process one message."""
        self.send(message, **headers)
        return self.work()

    def start(self, queue: str) -> "Session":
        """Process one message in a thread."""
        return Session(lambda: self.work(queue))

    @property
    def rows(self) -> list[tuple]:
        """(correlation value, version, state) of each instance."""
        import json

        rows = self.states.call("list_sagas", self.table, count=1000)
        return sorted((row[1], row[2], json.loads(row[4])) for row in rows)

    def notes(self) -> list[str]:
        """Return what sagas sent."""
        import json

        return sorted(json.loads(each.body)["What"] for each in Queue("audit", self.database).browse(1000))

    def waiting(self, queue: str) -> int:
        return Queue(queue, self.database).peek()

    def wait_until_blocked(self) -> None:
        """Wait until the server reports a session that waits for a lock on a saga."""
        eventually(self.sql.sessions_waiting_for_sagas, "a session waits for the saga's lock")

    def close(self) -> None:
        for pipeline in self.pipelines.values():
            pipeline.close()
        self.states.close()
        self.database.close()
        GATES.clear()


class Session:
    """Work in a thread, and its result."""

    def __init__(self, work: Callable) -> None:
        self._result: list = []
        self._thread = threading.Thread(target=lambda: self._result.append(work()), daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def outcome(self):
        self._thread.join(DEADLINE)
        assert not self.running, "the session hangs"
        return self._result[0]


@pytest.fixture
def make_desk(target, sql):
    """Return a function that makes an endpoint with a saga and empty tables: `make_desk("pessimistic", …)`."""
    desks = []

    def make(
        concurrency: str = "pessimistic", *, lock_timeout=timedelta(seconds=20), saga=None, mode=None, **options
    ) -> Desk:
        saga = saga or make_ledger(concurrency, f"Ledger_{concurrency}", lock_timeout=lock_timeout)
        desks.append(Desk(target, sql, saga, **({"transaction_mode": mode} if mode else {}), **options))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()


def racing_endpoint(concurrency: str) -> Endpoint:
    """Return an endpoint for worker processes: any message starts an account, and all conflicts are retried."""
    endpoint = Endpoint(
        f"Race.{concurrency}", error_queue="error", recoverability=Recoverability(policy=ConflictPolicy(retries=1000))
    )

    @endpoint.saga
    class Account(Saga[LedgerState], correlate={Add: "account"}, concurrency=concurrency):
        @starts(Add)
        def add(self, message, context):
            self.state.total += message.amount
            context.send(Noted(self.state.account, str(message.amount)), to="audit")

    return endpoint


race_pessimistic = racing_endpoint("pessimistic")
race_optimistic = racing_endpoint("optimistic")
#: its sagas are those of `make_ledger`
audited = make_endpoint(make_ledger("pessimistic", "Ledger_audited"))
