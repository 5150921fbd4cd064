"""Sagas against the database: finding, storing, timeouts, replies, and whatever may be wrong with them."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.verify import verify
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import check_sagas, with_sagas
from rowpost.errors import DeployError, InvalidCount, QueueNameConflict, SagaConflict, SagaNotDeployed, SettingsError
from rowpost.recoverability.outcome import Kind
from rowpost.sagas import Saga, handles, starts
from rowpost.settings.environment import SagaSettings
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.counting import CountingDialect
from tests.support.recorded_rows import differences, recorded_headers
from tests.support.sagas import GATES, KINDS, Add, Close, Nudge, Open, deploy, make_desk, make_endpoint, make_ledger
from tests.support.schema import named

__all__ = ["make_desk"]

VERSIONS = {"persistence_version": "1", "saga_type_version": "1.0.0"}


def headers_of(desk, queue):
    return [each.headers for each in Queue(queue, desk.database).browse(100)]


# ------------------------------------------------------------------ round trips
@pytest.mark.parametrize("concurrency", KINDS)
def test_a_message_that_changes_a_saga_takes_three_round_trips(make_desk, concurrency):
    """Receive with BEGIN; load; and all at once: the state, what was sent, and COMMIT."""
    desk = make_desk(concurrency)
    desk.handle(Open("A"))
    desk.handle(Add("A"))
    database = desk.pipelines["Sales"].database
    counting = database.dialect = CountingDialect(database.dialect)

    desk.handle(Add("A"))

    assert counting.trips == ["execute", "execute", "execute_all"]
    assert [row[2]["Total"] for row in desk.rows] == [2]


def test_a_locked_saga_that_its_handler_left_alone_is_not_written(make_desk):
    desk = make_desk("pessimistic")
    desk.handle(Open("A"))
    desk.handle(Nudge(), **{"NServiceBus.SagaId": str(the_id(desk))})

    assert [row[1] for row in desk.rows] == [1]
    assert "nudged" in desk.notes()


def test_an_optimistic_one_is_for_it_decided_by_what_it_read(make_desk):
    desk = make_desk("optimistic")
    desk.handle(Open("A"))
    desk.handle(Nudge(), **{"NServiceBus.SagaId": str(the_id(desk))})

    assert [row[1] for row in desk.rows] == [2]


def the_id(desk) -> UUID:
    ((found, *_),) = desk.database.call("list_sagas", desk.table, count=10)
    return found


# ------------------------------------------------------------------ the row
def test_the_row_is_as_nservicebus_persistence_sql_writes_it(make_desk, sql):
    desk = make_desk("pessimistic")

    desk.handle(Open("Büro 漢", 3), **{"NServiceBus.ReplyToAddress": "Billing", "NServiceBus.MessageId": "first"})

    row = sql.run(f"SELECT * FROM {sql.table(desk.table)}")[0]
    columns = ["Id", "Metadata", "Data", "PersistenceVersion", "SagaTypeVersion", "Concurrency", "Correlation_Account"]
    assert list(sql.columns(desk.table)) == [name.lower() if sql.babelfish else name for name in columns]
    data = row[2] if isinstance(row[2], dict) else json.loads(row[2])
    assert json.loads(row[1]) == {"OriginalMessageId": "first", "Originator": "Billing"}
    assert data == {"Account": "Büro 漢", "Total": 3, "Seen": [3]}
    assert row[4:] == ("1.0.0", 1, "Büro 漢")


def test_a_saga_that_one_message_starts_and_completes_leaves_nothing(make_desk):
    desk = make_desk()
    GATES["finish"] = lambda saga, context: saga.complete()

    desk.handle(Open("A", 1, "finish"))

    assert (desk.rows, desk.notes()) == ([], ["total 1"])


# ------------------------------------------------------------------ correlation
@pytest.mark.promise("saga-correlation-is-fixed")
def test_a_handler_that_changes_the_correlation_value_fails_and_nothing_is_stored(make_desk):
    desk = make_desk()
    desk.handle(Open("A"))
    GATES["rename"] = lambda saga, context: setattr(saga.state, "account", "B")

    outcome = desk.handle(Add("A", 1, "rename"))

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "InvalidCorrelation" in outcome.error
    assert [(row[0], row[1]) for row in desk.rows] == [("A", 1)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "missing"),
        ("", "empty"),
        ("x" * 201, "201 characters"),
        (17, "int"),
        ("a\0b", "the database cannot store"),
    ],
)
@pytest.mark.promise("saga-correlation-values")
def test_an_impossible_correlation_value_is_refused_and_not_retried(make_desk, value, said):
    @message_type("Ledger.Open")
    @dataclass(frozen=True)
    class Anything:
        account: object = None

    desk = make_desk()
    desk.send(Anything(value))
    desk.pipelines.clear()
    desk.endpoint = make_endpoint(loose_saga(Anything, desk.table))

    outcome = desk.work()
    message_type("Ledger.Open")(Open)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "InvalidCorrelation" in outcome.error
    assert said in outcome.error
    assert desk.rows == []


def loose_saga(cls, table):
    @dataclass
    class State:
        account: str
        total: int = 0

    class Loose(Saga[State], correlate={cls: "account"}, table=table):
        @starts(cls)
        def open(self, message, context):
            pass

    return Loose


@pytest.mark.promise("saga-correlation-values")
def test_two_hundred_characters_are_stored_and_found(make_desk):
    desk = make_desk()
    value = "ä" * 200

    desk.handle(Open(value, 1))
    desk.handle(Add(value, 2))

    assert [(row[0], row[2]["Total"]) for row in desk.rows] == [(value, 3)]


@pytest.mark.parametrize("other", ["aBC", "Abc "])
@pytest.mark.promise("saga-correlation-values")
def test_case_and_trailing_blanks_count_as_the_columns_collation_says(make_desk, sql, other):
    desk = make_desk()
    literal = "SELECT COUNT(*) FROM (SELECT 'Abc' AS a) AS x WHERE x.a = '{}'"
    same = bool(sql.value(literal.format(other)))

    desk.handle(Open("Abc", 1))
    desk.handle(Open(other, 2))

    assert len(desk.rows) == (1 if same else 2)


@pytest.mark.parametrize("value", ["'; DROP TABLE x; --", "%", "a]b", 'a"b', "漢🚀", "{saga_key}"])
@pytest.mark.promise("saga-correlation-values")
def test_special_characters_are_values_like_others(make_desk, value):
    desk = make_desk()

    desk.handle(Open(value, 1))
    desk.handle(Open("other", 5))
    desk.handle(Add(value, 2))

    assert (value, 3) in [(row[0], row[2]["Total"]) for row in desk.rows]


TYPED = {
    int: 2**53 + 1,
    UUID: UUID("14cfe524-7377-1367-6615-9061c2a79edd"),
    datetime: datetime(2026, 11, 20, 15, 30, 0, 123456, UTC),
}


@pytest.mark.parametrize("kind", TYPED, ids=lambda kind: kind.__name__)
def test_a_typed_correlation_value_finds_its_instance(make_desk, kind):
    @message_type(f"Typed.{kind.__name__}")
    @dataclass(frozen=True)
    class Go:
        key: kind
        amount: int = 1

    @dataclass
    class State:
        key: kind
        total: int = 0

    class Typed(Saga[State], correlate={Go: "key"}, table=f"Typed_{kind.__name__}"):
        @starts(Go)
        def go(self, message, context):
            self.state.total += message.amount

    desk = make_desk(saga=Typed)

    outcomes = [desk.handle(Go(TYPED[kind], 1)), desk.handle(Go(TYPED[kind], 2))]

    assert {each.kind for each in outcomes} == {Kind.HANDLED}, outcomes
    assert [row[2]["Total"] for row in desk.rows] == [3]


def test_a_message_may_compute_the_value_that_identifies_the_instance(make_desk):
    @message_type("Computed.Join")
    @dataclass
    class Join:
        first: str
        second: str
        account: str = ""

        def __post_init__(self):
            self.account = f"{self.first}_{self.second}"

    @dataclass
    class State:
        account: str
        total: int = 0

    class Computed(Saga[State], correlate={Open: "account", Join: "account"}, table="Computed"):
        @starts(Open)
        def open(self, message, context): ...

        @handles(Join)
        def join(self, message, context):
            self.state.total += 1

    desk = make_desk(saga=Computed)
    desk.handle(Open("part1_part2"))
    Queue("Sales", desk.database).send(
        b'{"First":"part1","Second":"part2"}', {"NServiceBus.EnclosedMessageTypes": "Computed.Join"}
    )

    outcome = desk.work()

    assert outcome.kind is Kind.HANDLED, outcome.error
    assert [(row[0], row[2]["Total"]) for row in desk.rows] == [("part1_part2", 1)]


def test_a_message_that_says_nowhere_which_instance_it_means_is_refused(make_desk):
    desk = make_desk()

    outcome = desk.handle(Nudge())

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "correlate={Nudge:" in outcome.error


def test_a_saga_id_that_is_none_is_refused(make_desk):
    desk = make_desk()

    outcome = desk.handle(Nudge(), **{"NServiceBus.SagaId": "no id"})

    assert (outcome.kind, "no id" in outcome.error) == (Kind.MOVED_TO_ERROR, True)


# ------------------------------------------------------------------ state
def test_a_state_that_cannot_be_stored_fails_and_leaves_what_was(make_desk):
    desk = make_desk()
    desk.handle(Open("A"))
    for name, value in (("object", object()), ("type", "many"), ("set", {1}), ("NUL", ["a\0b"])):
        GATES[name] = lambda saga, context, value=value: setattr(
            saga.state, "seen" if isinstance(value, list | set) else "total", value
        )

    outcomes = [desk.handle(Add("A", 1, name)) for name in ("object", "type", "NUL")]

    assert {each.kind for each in outcomes} == {Kind.MOVED_TO_ERROR}
    assert all("InvalidSagaState" in each.error for each in outcomes)
    assert [(row[1], row[2]["Total"]) for row in desk.rows] == [(1, 0)]


def changed_class(state, table, **options):
    class Ledger(Saga[state], correlate={Add: "account", Close: "account"}, table=table, **options):
        @starts(Add)
        def add(self, message, context):
            pass

        @handles(Close)
        def close(self, message, context):
            self.complete()

    return Ledger


@dataclass
class WithMore:
    account: str
    total: int = 0
    seen: list[int] | None = None
    note: str = "new"


@dataclass
class WithoutSeen:
    account: str
    total: int = 0


@dataclass
class Renamed:
    account: str
    balance: int = 0
    seen: list[int] | None = None


@dataclass
class Retyped:
    account: str
    total: list[int] | None = None
    seen: list[int] | None = None


@pytest.mark.parametrize(
    ("state", "options", "stored"),
    [
        (WithMore, {}, {"Account": "A", "Total": 5, "Seen": [5], "Note": "new"}),
        (WithoutSeen, {"removed": ("seen",)}, {"Account": "A", "Total": 5}),
        (Renamed, {"renamed": {"total": "balance"}}, {"Account": "A", "Balance": 5, "Seen": [5]}),
        (WithoutSeen, {}, "Seen"),
        (Renamed, {}, "Total"),
        (Retyped, {}, "does not fit"),
    ],
)
def test_a_state_that_was_stored_by_an_earlier_class(make_desk, state, options, stored):
    desk = make_desk("optimistic")
    desk.handle(Open("A", 5))
    desk.pipelines.clear()
    desk.endpoint = make_endpoint(changed_class(state, desk.table, concurrency="optimistic", **options))

    outcome = desk.handle(Add("A"))

    if isinstance(stored, dict):
        assert (outcome.kind, desk.rows[0][2]) == (Kind.HANDLED, stored)
    else:
        assert outcome.kind is Kind.MOVED_TO_ERROR
        assert stored in outcome.error
        assert desk.rows[0][1:] == (1, {"Account": "A", "Total": 5, "Seen": [5]})


# ------------------------------------------------------------------ locks
def test_a_lock_wait_past_its_limit_says_which_saga_and_how_long(make_desk):
    desk = make_desk("pessimistic", lock_timeout=timedelta(milliseconds=300))
    desk.handle(Open("A"))
    GATES["hold"] = lambda saga, context: outcomes.append(desk.work("Billing"))
    outcomes = []
    desk.send(Add("A", 2), "Billing")

    desk.handle(Add("A", 1, "hold"))

    assert outcomes[0].kind is Kind.FAILED
    assert "LockTimeout: The saga Ledger A was locked by another message for more than 0.3 s" in outcomes[0].error
    assert [row[2]["Total"] for row in desk.rows] == [1]


def test_the_limit_is_gone_with_the_call(make_desk):
    desk = make_desk()
    desk.handle(Open("A"))
    database = desk.pipelines["Sales"].database
    setting = "SHOW lock_timeout" if database.engine == "postgresql" else "SELECT @@LOCK_TIMEOUT"

    with database.transaction():
        database.call("load_saga", desk.table, correlation_value="A", locked=True, lock_timeout_ms=300)
        found = database.driver_connection.execute(setting).fetchone()[0]

    assert found in ("0", -1)


# ------------------------------------------------------------------ timeouts, replies, headers
def test_a_timeout_finds_its_instance_by_id_whatever_the_message_says(make_desk):
    desk = make_desk()
    GATES["later"] = lambda saga, context: context.request_timeout(timedelta(milliseconds=-1), Nudge("mark"))
    GATES["mark"] = lambda saga, context: setattr(saga.state, "total", saga.state.total + 100)
    desk.handle(Open("A", 1, "later"))
    desk.handle(Open("B", 2))

    move_due(desk.database, "Sales")
    (headers,) = headers_of(desk, "Sales")
    outcome = desk.work()

    assert outcome.kind is Kind.HANDLED
    assert [(row[0], row[2]["Total"]) for row in desk.rows] == [("A", 101), ("B", 2)]
    assert headers["NServiceBus.IsSagaTimeoutMessage"] == "True"
    assert headers["NServiceBus.SagaType"] == desk.saga.declaration.name
    assert headers["NServiceBus.DeliverAt"]


def test_what_a_saga_sends_has_the_headers_of_the_recorded_rows(make_desk, target, sql):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    desk = make_desk()
    for table in ("Billing", "Sales.Delayed"):
        sql.run(f"DELETE FROM {sql.table(table)}")
    GATES["both"] = lambda saga, context: (
        context.send(Nudge("ask"), to="Billing"), context.request_timeout(timedelta(hours=1), Nudge("mark")),
    )  # fmt: skip

    desk.handle(Open("A", 1, "both"))

    (request,) = headers_of(desk, "Billing")
    ((timeout,),) = sql.run(f"SELECT headers FROM {sql.table('Sales.Delayed')}")
    own = {
        "NServiceBus.EnclosedMessageTypes",
        "NServiceBus.SagaType",
        "NServiceBus.OriginatingSagaType",
    }  # names of other classes
    found = {
        name: differences(ours, recorded_headers(name))
        for name, ours in (("saga-request", request), ("saga-timeout", json.loads(timeout)))
    }
    assert {
        name: {header: pair for header, pair in each.items() if header not in own} for name, each in found.items()
    } == {
        "saga-request": {},
        # the timeout waits in the table of its own queue
        "saga-timeout": {"NServiceBus.SqlServer.ForwardDestination": (False, "address")},
    }


def test_a_timeout_at_a_moment_is_due_then(make_desk, sql):
    desk = make_desk()
    sql.empty("Sales.Delayed")
    GATES["later"] = lambda saga, context: context.request_timeout(datetime.now(UTC) + timedelta(hours=1), Nudge())

    desk.handle(Open("A", 1, "later"))

    moved = move_due(desk.database, "Sales")
    assert moved.moved == 0
    assert 3500 < moved.next_due <= 3600


def test_a_timeout_of_a_saga_that_is_complete_is_discarded_as_expected(make_desk):
    desk = make_desk()
    GATES["later"] = lambda saga, context: context.request_timeout(timedelta(0), Nudge("mark"))
    desk.handle(Open("A", 1, "later"))
    desk.handle(Close("A"))

    move_due(desk.database, "Sales")
    outcome = desk.work()

    assert (outcome.kind, desk.waiting("error"), desk.waiting("Sales")) == (Kind.DISCARDED, 0, 0)
    assert ("that is complete" in outcome.discard.reason, outcome.discard.expected) == (True, True)


@pytest.mark.promise("nothing-vanishes")
def test_a_message_for_another_saga_that_nobody_hosts_is_discarded(make_desk):
    named = {
        "NServiceBus.SagaId": str(uuid4()),
        "NServiceBus.SagaType": "Another.Saga",
        "NServiceBus.IsSagaTimeoutMessage": "True",
    }
    desk = make_desk()

    outcome = desk.handle(Nudge("mark"), **named)

    assert outcome.kind is Kind.DISCARDED
    assert ("Another.Saga" in outcome.discard.reason, outcome.discard.expected) == (True, False)


def test_a_timeout_is_for_the_saga_that_asked_for_it_alone(make_desk):
    desk = make_desk()
    other = make_ledger("pessimistic", "Ledger_other")
    other.declaration = replace(other.declaration, name="Another.Saga")
    desk.endpoint.saga(other)
    deploy(desk.target, desk.endpoint)
    desk.sql.run(f"DELETE FROM {desk.sql.table('Ledger_other')}")
    entered = []
    GATES["later"] = lambda saga, context: context.request_timeout(timedelta(0), Nudge("mark"))
    GATES["mark"] = lambda saga, context: entered.append(type(saga))
    desk.handle(Open("A", 1, "later"))  # starts one of each

    for _ in range(2):
        move_due(desk.database, "Sales")
        desk.work()

    assert sorted(map(str, entered)) == sorted(map(str, [desk.saga, other]))


def test_a_reply_finds_the_instance_that_asked_and_a_saga_answers_its_originator(make_desk):
    desk = make_desk()
    GATES["ask"] = lambda saga, context: context.send(Nudge("answer"), to="Billing")
    GATES["answer"] = lambda saga, context: context.reply_to_originator(Nudge("done"))
    asked = {"NServiceBus.ReplyToAddress": "audit", "NServiceBus.OriginatingSagaId": "14cfe524-7377-1367-6615-9061c2a79edd",
             "NServiceBus.OriginatingSagaType": "Web.Policy, Web", "NServiceBus.MessageId": "m1"}  # fmt: skip
    desk.handle(Open("A", 1, "ask"), **asked)
    billing = Endpoint("Billing")
    billing.handles("Ledger.Nudge", Nudge)(lambda message, context: context.reply(message) and None)

    billing.process_one(desk.database)
    outcome = desk.work()

    assert outcome.kind is Kind.HANDLED
    (answer,) = [each for each in headers_of(desk, "audit") if each["NServiceBus.MessageIntent"] == "Reply"]
    assert answer["NServiceBus.CorrelationId"] == "m1"
    assert answer["NServiceBus.SagaId"] == asked["NServiceBus.OriginatingSagaId"]
    assert answer["NServiceBus.SagaType"] == "Web.Policy, Web"
    assert answer["NServiceBus.OriginatingSagaId"] == str(the_id(desk))


def test_an_originator_that_wants_no_reply_is_said_so(make_desk):
    desk = make_desk()
    GATES["answer"] = lambda saga, context: context.reply_to_originator(Nudge())

    outcome = desk.handle(Open("A", 1, "answer"), **{"NServiceBus.ReplyToAddress": None})

    assert (outcome.kind, "has no reply address" in outcome.error) == (Kind.FAILED, True)


def test_the_audits_copy_says_which_instance_a_message_came_to(make_desk):
    desk = make_desk(audit_queue="audit")

    desk.handle(Open("A", 1))

    named = [
        each["NServiceBus.InvokedSagas"] for each in headers_of(desk, "audit") if "NServiceBus.InvokedSagas" in each
    ]
    assert named == [f"{desk.saga.declaration.name}:{the_id(desk)}"]


def test_what_a_sagas_handler_adds_to_the_audits_copy_is_in_it(make_desk):
    desk = make_desk(audit_queue="audit")
    GATES["mark"] = lambda saga, context: context.audit_headers.update({"Shop.Region": "north"})

    desk.handle(Open("A", 1, "mark"))

    assert [each.get("Shop.Region") for each in headers_of(desk, "audit") if "NServiceBus.InvokedSagas" in each] == [
        "north"
    ]


def test_a_message_that_finds_nothing_may_go_elsewhere(make_desk):
    class Ledger(make_ledger("pessimistic", "Ledger_pessimistic")):
        @classmethod
        def not_found(cls, message, context):
            context.send(Nudge("not found"), to="audit")

    desk = make_desk(saga=Ledger)

    desk.handle(Add("A"))

    assert [each["NServiceBus.EnclosedMessageTypes"] for each in headers_of(desk, "audit")] == ["Ledger.Nudge"]


# ------------------------------------------------------------------ transaction modes
@pytest.mark.parametrize("concurrency", KINDS)
def test_receive_only_keeps_the_state_with_the_removal_and_sends_nothing_after_a_conflict(make_desk, concurrency):
    desk = make_desk(concurrency, mode="receive_only")
    desk.handle(Open("A", 1))
    GATES["meddle"] = lambda saga, context: context.database.call(
        "update_saga", desk.table, id=saga.id, concurrency=1, data='{"Account":"A"}', **VERSIONS
    )

    conflict = desk.handle(Add("A", 2, "meddle"))
    GATES.clear()
    retried = desk.work()

    assert (conflict.kind, retried.kind) == (Kind.FAILED, Kind.HANDLED)
    assert [row[2]["Total"] for row in desk.rows] == [3]
    assert desk.notes() == ["total 1", "total 3"]


def test_the_mode_none_is_refused_with_why():
    with pytest.raises(SettingsError, match="removed before the state is stored"):
        make_endpoint(make_ledger("pessimistic", "X"), transaction_mode="none", recoverability=None)


# ------------------------------------------------------------------ deployment
def test_two_sagas_with_one_table_are_refused():
    endpoint = make_endpoint(make_ledger("pessimistic", "Ledger"))

    with pytest.raises(SettingsError, match="the same table"):
        endpoint.saga(make_ledger("pessimistic", "LEDGER"))


def test_two_endpoints_with_one_saga_table_and_two_correlations_are_refused(target, monkeypatch):
    import tests.support.sagas as module
    from rowpost.settings.environment import QueueSettings, WorkerSettings

    queues = (QueueSettings("Race.pessimistic", worker=WorkerSettings("tests.support.sagas:race_pessimistic")),)
    table = named(module.race_pessimistic.sagas[0].name)

    with pytest.raises(SettingsError, match="declared twice"):
        with_sagas(replace(target.settings, queues=queues, sagas=(SagaSettings(table, "Number", "integer"),)))


def test_a_saga_without_a_table_is_named_before_any_worker_starts_and_by_each_message(make_desk, target):
    desk = make_desk()
    desk.pipelines.clear()
    desk.endpoint = make_endpoint(make_ledger("pessimistic", "Nowhere"))

    with pytest.raises(SagaNotDeployed, match="rowpost apply"):
        check_sagas(replace(target.settings, sagas=desk.endpoint.sagas), desk.database)

    outcome = desk.handle(Open("A"))
    assert (outcome.kind, "SagaNotDeployed" in outcome.error) == (Kind.FAILED, True)


@pytest.mark.parametrize("damage", ["drop table", "drop column"])
def test_a_table_that_is_gone_or_lost_a_column_is_named_by_messages_and_by_verify(make_desk, target, sql, damage):
    saga = make_ledger("pessimistic", f"Damaged_{damage[5:]}")
    desk = make_desk(saga=saga)
    table = sql.table(desk.table)
    sql.run(
        f"DROP TABLE {table}"
        if damage == "drop table"
        else f"ALTER TABLE {table} DROP COLUMN {sql.database.dialect.quote('Metadata')}"
    )

    outcome = desk.handle(Open("A"))
    settings = replace(
        target.settings, sagas=tuple(replace(each, name=named(each.name)) for each in desk.endpoint.sagas)
    )
    found = {
        finding.kind for finding in verify(desk.database, plan(settings)) if f"Damaged_{damage[5:]}" in finding.subject
    }

    assert outcome.kind is Kind.FAILED
    assert "SagaNotDeployed" in outcome.error
    assert found == {"object_gone" if damage == "drop table" else "table_altered"}
    if damage == "drop column":
        sql.run(f"DROP TABLE {table}")
    apply(desk.database, plan(settings))
    assert desk.work().kind is Kind.HANDLED


def test_a_saga_may_not_take_a_queues_table_nor_another_type_for_its_correlation(target, database):
    def deployed(*sagas):
        apply(database, plan(replace(target.settings, sagas=sagas)))

    with pytest.raises(QueueNameConflict):
        deployed(SagaSettings(named("Sales"), "OrderId"))
    deployed(SagaSettings("Typed_by_number", "OrderId", "integer"))
    with pytest.raises(DeployError, match="Correlation_OrderId"):
        deployed(SagaSettings("Typed_by_number", "OrderId", "uuid"))


def test_a_type_whose_name_begins_like_the_correlations_is_another_type(target, database, sql):
    if database.engine == "postgresql":
        pytest.skip("PostgreSQL compares the whole type")
    sql.run(
        "CREATE TABLE dbo.Typed_by_time (Id uniqueidentifier NOT NULL PRIMARY KEY, Metadata nvarchar(max) NOT NULL,"
        " Data nvarchar(max) NOT NULL, PersistenceVersion varchar(23) NOT NULL, SagaTypeVersion varchar(23) NOT NULL,"
        " Concurrency int NOT NULL, Correlation_OrderId datetime NULL)"
    )

    with pytest.raises(DeployError, match="Correlation_OrderId"):
        apply(database, plan(replace(target.settings, sagas=(SagaSettings("Typed_by_time", "OrderId", "timestamp"),))))


def test_a_deployment_without_the_declaration_keeps_the_sagas_that_are_registered(make_desk, target, sql):
    desk = make_desk()

    result = apply(desk.database, plan(target.settings))

    assert named(desk.table) in result.undeclared
    assert desk.handle(Open("A")).kind is Kind.HANDLED


# ------------------------------------------------------------------ the procedures
@pytest.fixture
def ledger(make_desk):
    """The procedures of one saga type: `ledger("insert_saga", …)`."""
    desk = make_desk()

    def call(procedure, **arguments):
        return desk.database.call(procedure, desk.table, **arguments)

    call.desk = desk
    return call


def insert(ledger, value="A", data='{"Account":"A"}'):
    key = uuid4()
    ledger("insert_saga", id=key, correlation_value=value, data=data, metadata="{}", **VERSIONS)
    return key


def test_insert_saga_takes_a_correlation_value_once(ledger):
    key = insert(ledger)

    with pytest.raises(SagaConflict):
        insert(ledger)
    ledger.desk.database.rollback()
    assert [row[0] for row in ledger("list_sagas", count=10)] == [key]


@pytest.mark.parametrize("procedure", ["update_saga", "complete_saga"])
def test_a_version_that_is_not_the_stored_one_is_a_conflict(ledger, procedure):
    key = insert(ledger)
    content = {"data": "{}", **VERSIONS} if procedure == "update_saga" else {}

    for wrong in ({"id": key, "concurrency": 2}, {"id": uuid4(), "concurrency": 1}):
        with pytest.raises(SagaConflict):
            ledger(procedure, **wrong, **content)
        ledger.desk.database.rollback()
    ledger(procedure, id=key, concurrency=1, **content)

    assert [row[2] for row in ledger("list_sagas", count=10)] == ([2] if procedure == "update_saga" else [])


def test_what_they_do_is_undone_by_the_callers_rollback(ledger):
    key = insert(ledger)

    with pytest.raises(ZeroDivisionError), ledger.desk.database.transaction():
        ledger("complete_saga", id=key, concurrency=1)
        insert(ledger, "B")
        raise ZeroDivisionError

    assert [row[0] for row in ledger("list_sagas", count=10)] == [key]


def test_list_sagas_reads_page_by_page(ledger):
    keys = {insert(ledger, f"A{number}") for number in range(5)}

    pages, anchor = [], None
    while page := ledger("list_sagas", count=2, after_id=anchor):
        pages.append([row[0] for row in page])
        anchor = pages[-1][-1]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert {key for page in pages for key in page} == keys
    for wrong in (0, 1001):
        with pytest.raises(InvalidCount):
            ledger("list_sagas", count=wrong)
