"""The four transaction modes, on every engine that can be reached."""

from collections import Counter
from contextlib import nullcontext, suppress
from datetime import timedelta

import psycopg
import pytest

from rowpost.database.connection import connect_url
from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import DatabaseUnavailable, HandlerBrokeTransaction, ParticipantFailed, SettingsError
from rowpost.pipeline import within_transaction
from rowpost.pipeline.batch_size import batch_size
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Decision, Recoverability
from rowpost.settings.secrets import resolve_participants
from rowpost.transactions.recovery import list_in_doubt
from rowpost.transactions.scope import begin_scope
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from tests.support.crashing import TYPE, Order, endpoint_of, pipeline_of, write
from tests.support.pipelines import pipeline_with
from tests.support.sagas import GATES, Add, Open, make_desk

__all__ = ["make_desk"]

TRANSACTIONAL = [mode for mode in MODES if mode != "none"]
ATOMIC = ["sends_atomic_with_receive", "transaction_scope"]


@pytest.fixture
def business(queue, sql):
    """The table `business`, and Billing and error, empty."""
    sql.run("DROP TABLE IF EXISTS business")
    sql.run("CREATE TABLE business (number integer NOT NULL)")
    for name in ("Billing", "error"):
        sql.empty(name)
    return lambda: [row[0] for row in sql.run("SELECT number FROM business ORDER BY number")]


@pytest.fixture
def run(queue, database, business):
    """Sends an order and handles it: `run(mode, then)`; `then` is the end of the handler. What became of it, each time."""
    opened = []

    def handle(mode, then=lambda context: None, *, times=1, participants=None, endpoint=None):
        queue.send(b'{"Number":1}', {"NServiceBus.EnclosedMessageTypes": TYPE})
        endpoint = endpoint or endpoint_of("Sales", mode, participants or {}, then=then)
        opened.append(pipeline_of(database, endpoint))
        return [opened[-1].process_one() for _ in range(times)]

    yield handle
    for pipeline in opened:
        pipeline.close()


@pytest.fixture(scope="module")
def shop(target, lasting_database):
    """Another database with the table `business`: its URL, or its name on SQL Server."""
    if target.settings.engine == "postgresql":
        with target.connect() as database:
            if database.driver_connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
                pytest.skip("max_prepared_transactions is 0 on this server")
    url = lasting_database("sqlserver" if target.settings.engine == "sqlserver" else target.label)
    with connect_url(target.settings.engine, url) as database:
        database.driver_connection.execute("CREATE TABLE business (number integer NOT NULL)")
    return url if target.settings.engine == "postgresql" else url.rpartition("Database=")[2]


@pytest.fixture
def in_shop(shop, sql):
    """What is in the other database; it is empty at first."""

    def run(statement):
        if "://" not in shop:
            return sql.run(statement.replace("business", f"{shop}.dbo.business"))
        with connect_url("postgresql", shop) as database:
            cursor = database.driver_connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    run("DELETE FROM business")
    return lambda: [row[0] for row in run("SELECT number FROM business")]


def bodies(database, name):
    return [message.body for message in Queue(name, database).browse(100)]


def fail(context):
    raise ValueError("no such order")


# ------------------------------------------------------------------ a handler that succeeds
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("handlers-sql-joins")
def test_a_handled_message_is_removed_and_its_data_and_sends_are_stored(run, queue, database, business, mode):
    (outcome,) = run(mode)

    assert outcome.kind is Kind.HANDLED
    assert (business(), bodies(database, "Billing"), queue.peek()) == ([1], [b'{"Number":1}'], 0)


def test_a_handler_that_holds_its_transaction_for_long_is_warned_of_with_what_to_do(run, monkeypatch, caplog):
    monkeypatch.setattr(within_transaction, "LONG_SECONDS", 0.0)

    run("sends_atomic_with_receive")

    assert "has held its transaction for 0 s" in caplog.text
    assert "receive='lease'" in caplog.text


# ------------------------------------------------------------------ a handler that fails
@pytest.mark.promise("none-loses-on-failure")
def test_none_a_failing_handler_finds_its_message_gone_and_keeps_what_it_wrote(run, queue, database, business):
    (outcome,) = run("none", fail)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert (queue.peek(), business(), bodies(database, "Billing")) == (0, [1], [])


@pytest.mark.parametrize("mode", TRANSACTIONAL)
@pytest.mark.promise("sends-are-atomic", "handlers-sql-joins")
def test_a_failing_handler_leaves_neither_a_send_nor_data_nor_a_removal(run, queue, database, business, mode):
    (outcome,) = run(mode, fail)

    assert outcome.kind is Kind.FAILED
    assert (queue.peek(), business(), bodies(database, "Billing")) == (1, [], [])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("receive-only-may-send-twice", "immediate-send-stays")
def test_an_immediate_send_stays_though_the_handler_fails(run, queue, database, business, mode):
    def send_then_fail(context):
        context.send(Order(99), to="Billing", immediate=True)
        fail(context)

    run(mode, send_then_fail)

    assert bodies(database, "Billing") == [b'{"Number":99}']
    assert queue.peek() == (0 if mode == "none" else 1)


@pytest.mark.promise("receive-only-may-send-twice")
def test_receive_only_sends_before_it_removes_so_that_a_failing_removal_leaves_a_sent_message(
    run, queue, database, business, sql
):
    if database.engine != "postgresql":
        pytest.skip("SQL Server has no deferred constraints to make a COMMIT fail")
    sql.run("ALTER TABLE business ADD CONSTRAINT single UNIQUE (number) DEFERRABLE INITIALLY DEFERRED")
    sql.run("INSERT INTO business (number) VALUES (1)")

    (outcome,) = run("receive_only")

    assert outcome.kind is Kind.FAILED
    assert (queue.peek(), business(), bodies(database, "Billing")) == (1, [1], [b'{"Number":1}'])


@pytest.mark.parametrize("mode", ATOMIC)
@pytest.mark.promise("sends-are-atomic")
def test_a_commit_that_fails_leaves_no_sent_message(run, queue, database, business, sql, mode):
    if database.engine != "postgresql":
        pytest.skip("SQL Server has no deferred constraints to make a COMMIT fail")
    sql.run("ALTER TABLE business ADD CONSTRAINT single UNIQUE (number) DEFERRABLE INITIALLY DEFERRED")
    sql.run("INSERT INTO business (number) VALUES (1)")

    (outcome,) = run(mode)

    assert outcome.kind is Kind.FAILED
    assert (queue.peek(), business(), bodies(database, "Billing")) == (1, [1], [])


@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_a_failing_message_is_called_as_often_as_configured_and_then_moves(run, queue, database, business, mode):
    outcomes = run(mode, fail, times=4)

    kinds = [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR, Kind.EMPTY]
    assert [outcome.kind for outcome in outcomes] == kinds
    assert (queue.peek(), business(), bodies(database, "error")) == (0, [], [b'{"Number":1}'])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("handlers-header-changes")
def test_header_changes_of_a_failing_handler_reach_neither_a_retry_nor_the_error_queue(
    run, queue, database, business, mode
):
    seen = []

    def change_and_fail(context):
        seen.append((context.headers["NServiceBus.EnclosedMessageTypes"], context.headers.get("Added")))
        context.headers["NServiceBus.EnclosedMessageTypes"] = "changed"
        context.headers["Added"] = "by the handler"
        fail(context)

    run(mode, change_and_fail, times=4)

    (error,) = Queue("error", database).browse()
    assert set(seen) == {(TYPE, None)}
    assert error.headers["NServiceBus.EnclosedMessageTypes"] == TYPE
    assert "Added" not in error.headers


@pytest.mark.parametrize("numbers", [{"immediate_retries": 1}, {"delayed_retries": 1}, {"immediate_retries": 3}])
def test_retries_that_are_asked_for_are_refused_in_the_mode_none(numbers):
    with pytest.raises(SettingsError, match="cannot retry in the mode none"):
        Endpoint("Sales", transaction_mode="none", recoverability=Recoverability(**numbers))


@pytest.mark.parametrize("recoverability", [None, Recoverability(unrecoverable=()), Recoverability(0, 0)])
def test_the_mode_none_takes_the_defaults_and_no_retries(recoverability):
    endpoint = Endpoint("Sales", transaction_mode="none", recoverability=recoverability)

    assert endpoint.transaction_mode == "none"


@pytest.mark.promise("none-means-one-call")
def test_none_calls_exactly_once_however_many_retries_are_configured(run, queue, database, business):
    calls = []

    def count_and_fail(context):
        calls.append(context.message_id)
        fail(context)

    endpoint = endpoint_of("Sales", "none", {}, then=count_and_fail)
    endpoint.recoverability = Recoverability(immediate_retries=5, delayed_retries=3)
    outcomes = run("none", times=3, endpoint=endpoint)

    assert [outcome.kind for outcome in outcomes] == [Kind.MOVED_TO_ERROR, Kind.EMPTY, Kind.EMPTY]
    assert len(calls) == 1
    (error,) = Queue("error", database).browse()
    assert error.headers["NServiceBus.FailedQ"] == database.canonical(parse_address("Sales"))
    assert error.headers["NServiceBus.ExceptionInfo.Message"] == "no such order"


@pytest.mark.promise("none-means-one-call")
def test_none_a_message_to_an_unknown_queue_ends_in_the_error_queue(run, queue, database, business):
    (outcome,) = run("none", lambda context: context.send(Order(2), to="Nowhere"))

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert (bodies(database, "Billing"), bodies(database, "error")) == ([], [b'{"Number":1}'])


def test_none_a_handler_may_use_transactions_of_its_own_but_leaves_none_open(run, database, business):
    (outcome,) = run("none", lambda context: context.database.begin())

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "HandlerBrokeTransaction" in outcome.error
    assert not database.in_transaction


# ------------------------------------------------------------------ several databases
@pytest.mark.promise("scope-spans-databases")
def test_one_scope_over_receive_sends_and_data_in_two_databases(run, queue, database, business, shop, in_shop):
    (outcome,) = run("transaction_scope", participants={"shop": shop})

    assert outcome.kind is Kind.HANDLED
    assert (business(), in_shop(), bodies(database, "Billing"), queue.peek()) == ([1], [1], [b'{"Number":1}'], 0)


@pytest.mark.promise("scope-spans-databases")
def test_a_failing_handler_leaves_nothing_in_either_database(run, queue, database, business, shop, in_shop):
    outcomes = run("transaction_scope", fail, times=4, participants={"shop": shop})

    assert [outcome.kind for outcome in outcomes][:3] == [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert (business(), in_shop(), bodies(database, "Billing"), queue.peek()) == ([], [], [], 0)


def test_a_message_that_is_delayed_leaves_nothing_in_either_database(
    run, queue, database, business, shop, in_shop, sql
):
    sql.run(f"DELETE FROM {sql.table('Sales.Delayed')}")
    endpoint = endpoint_of("Sales", "transaction_scope", {"shop": shop}, then=fail)
    endpoint.recoverability = Recoverability(0, 1, timedelta(0))

    (first,) = run("transaction_scope", endpoint=endpoint)
    between = (business(), in_shop(), bodies(database, "Billing"), queue.peek())
    move_due(database, "Sales")
    last = endpoint.process_one(database)

    assert [first.kind, last.kind] == [Kind.DELAYED, Kind.MOVED_TO_ERROR]
    assert between == (business(), in_shop(), bodies(database, "Billing"), queue.peek()) == ([], [], [], 0)
    assert list_in_doubt(database, {"shop": shop}) == ([], {})


@pytest.mark.promise("scope-spans-databases")
def test_a_send_that_fails_undoes_the_other_database(run, queue, database, business, shop, in_shop):
    def send_nowhere(context):
        context.send(Order(2), to="Nowhere")

    (outcome,) = run("transaction_scope", send_nowhere, participants={"shop": shop})

    assert outcome.kind is Kind.FAILED
    assert (business(), in_shop(), bodies(database, "Billing"), queue.peek()) == ([], [], [], 1)
    assert list_in_doubt(database, {"shop": shop}) == ([], {})


@pytest.mark.promise("scope-spans-databases")
def test_many_messages_use_one_connection_and_leave_no_decision(run, queue, database, business, shop, in_shop):
    pids = set()

    def note(context):
        if database.engine == "postgresql":
            pids.add(context.enlist("shop").info.backend_pid)

    for number in range(2, 31):
        queue.send(b'{"Number":%d}' % number, {"NServiceBus.EnclosedMessageTypes": TYPE})
    outcomes = run("transaction_scope", note, times=31, participants={"shop": shop})

    assert Counter(outcome.kind for outcome in outcomes) == {Kind.HANDLED: 30, Kind.EMPTY: 1}
    assert sorted(in_shop()) == business() == list(range(1, 31))
    assert len(pids) <= 1
    assert database.call("list_decisions") == []


@pytest.mark.parametrize("mode", ["none", "receive_only", "sends_atomic_with_receive"])
def test_other_modes_refuse_a_second_database_with_what_to_do(run, business, mode):
    (outcome,) = run(mode, lambda context: context.enlist("shop"))

    assert "SettingsError" in outcome.error
    assert "transaction_scope" in outcome.error


def test_a_participant_that_nobody_named_is_refused_with_those_that_are_known(run, business, shop):
    (outcome,) = run("transaction_scope", lambda context: context.enlist("shpo"), participants={"shop": shop})

    assert "SettingsError" in outcome.error
    assert "shop" in outcome.error


# ------------------------------------------------------------------ what a handler does to its session
CHANGES = {
    "search_path": "SET search_path = nowhere",
    "by a function": "SELECT set_config('search_path', 'nowhere', false)",
    "several statements": "SELECT 1; SET search_path = nowhere; SELECT 2",
    "role": "SET ROLE pg_monitor",
    "statement_timeout": "SET statement_timeout = 1",
    "prepared statements": "DEALLOCATE ALL",
}
CHANGES_OF_SQLSERVER = {
    "search_path": "SET NOCOUNT ON; SET ANSI_WARNINGS OFF",
    "by a function": "SET LOCK_TIMEOUT 5",
    "several statements": "SELECT 1; SET DATEFIRST 3; SELECT 2",
    "role": "SET ROWCOUNT 1",
    "statement_timeout": "SET IMPLICIT_TRANSACTIONS ON",
    "prepared statements": "SET XACT_ABORT ON",
}
LOOK = {
    "postgresql": "SELECT current_setting('search_path'), current_user = session_user, current_setting('statement_timeout')",
    "sqlserver": "SELECT @@OPTIONS, @@LOCK_TIMEOUT, @@DATEFIRST, COUNT(*) FROM (SELECT 1 AS n UNION ALL SELECT 2) AS two",
}


@pytest.fixture
def seen(database):
    """Notes what a handler finds in its session, and what the statement is with which it changes something: `seen(context)`."""
    found = []

    def note(context):
        found.append(tuple(context.connection.execute(LOOK[database.engine]).fetchone()))

    note.found = found
    note.changes = CHANGES if database.engine == "postgresql" else CHANGES_OF_SQLSERVER
    return note


@pytest.mark.promise("session-is-clean")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_what_a_handler_changes_in_its_session_the_next_one_does_not_meet(
    run, queue, database, business, seen, mode, change
):
    def changing(context):
        seen(context)
        context.connection.execute(seen.changes[change])

    outcomes = run(mode, changing)
    queue.send(b'{"Number":2}', {"NServiceBus.EnclosedMessageTypes": TYPE})
    outcomes += run(mode, seen, times=2)

    assert [outcome.kind for outcome in outcomes] == [Kind.HANDLED] * 3
    assert len(set(seen.found)) == 1
    assert business() == [1, 1, 2]


@pytest.mark.promise("session-is-clean")
@pytest.mark.parametrize("change", CHANGES)
def test_neither_do_the_other_messages_of_a_batch(queue, database, business, seen, change):
    for number in range(4):
        queue.send(b'{"Number":%d}' % number, {"NServiceBus.EnclosedMessageTypes": TYPE})

    def changing(context):
        seen(context)
        context.connection.execute(seen.changes[change])

    batches = Batches(
        pipeline_of(database, endpoint_of("Sales", "sends_atomic_with_receive", {}, then=changing)), batch_size(4, 1.0)
    )

    outcomes = batches.process()

    assert [outcome.kind for outcome in outcomes] == [Kind.HANDLED] * 4
    assert (len(set(seen.found)), business()) == (1, [0, 1, 2, 3])


def test_a_session_that_a_handler_reaches_without_its_context_is_reset_too(queue, database, business):
    """The caller lends the connection, and the handler closes over it."""
    if database.engine != "postgresql":
        pytest.skip(
            "only the driver of PostgreSQL shows what a handler executes on a connection that it did not ask for"
        )
    lent, found, endpoint = database.driver_connection, [], Endpoint("Sales")

    @endpoint.handles(TYPE, Order)
    def handle(order, context):
        found.append(lent.execute("SHOW search_path").fetchone())
        lent.execute("SET search_path = nowhere")

    for number in range(2):
        queue.send(b'{"Number":%d}' % number, {"NServiceBus.EnclosedMessageTypes": TYPE})
    outcomes = [pipeline_of(database, endpoint).process_one() for _ in range(2)]

    assert ([outcome.kind for outcome in outcomes], len(set(found))) == ([Kind.HANDLED] * 2, 1)


@pytest.mark.parametrize("statement", ["SET LOCAL app.who = 'me'", "SELECT set_config('app.who', 'me', true)"])
def test_what_is_set_until_the_end_of_the_transaction_is_there_at_its_commit(
    run, database, business, sql, seen, statement
):
    """A deferred trigger reads it, as an audit of rows does."""
    if database.engine != "postgresql":
        pytest.skip("SQL Server has no settings that end with the transaction")
    sql.run("CREATE TABLE told (who text)")
    sql.run(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO told VALUES (current_setting(''app.who'', true)); RETURN NULL; END'"
    )
    sql.run(
        "CREATE CONSTRAINT TRIGGER tells AFTER INSERT ON business DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tell()"
    )
    try:
        (outcome,) = run("sends_atomic_with_receive", lambda context: context.connection.execute(statement))
        found = [row[0] for row in sql.run("SELECT who FROM told")]
    finally:
        sql.run("DROP TABLE business, told")
        sql.run("DROP FUNCTION tell()")

    assert (outcome.kind, found) == (Kind.HANDLED, ["me"])


def test_settings_of_many_messages_leave_no_more_prepared_statements(queue, database, business, seen):
    for number in range(8):
        queue.send(b'{"Number":%d}' % number, {"NServiceBus.EnclosedMessageTypes": TYPE})
    pipeline = pipeline_of(
        database,
        endpoint_of(
            "Sales",
            "sends_atomic_with_receive",
            {},
            then=lambda context: context.connection.execute("SET work_mem = '5MB'"),
        ),
    )
    counts = []

    for _ in range(8):
        pipeline.process_one()
        counts.append(database.driver_connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0])

    assert counts[-1] == counts[1]


# ------------------------------------------------------------------ several databases of PostgreSQL
@pytest.fixture
def two_phase(target, shop, in_shop):
    """URL of the other database, for what only two-phase commit knows."""
    if target.settings.engine != "postgresql":
        pytest.skip("rowpost commits in two phases on PostgreSQL only")
    return shop


def scope(handler, participants):
    """An endpoint whose handler gets the context and nothing else to do."""
    endpoint = Endpoint(
        "Sales", transaction_mode="transaction_scope", participants=participants,
        recoverability=Recoverability(immediate_retries=0, delayed_retries=0),
    )  # fmt: skip
    endpoint.handles(TYPE, Order)(lambda order, context: handler(context))
    return endpoint


def test_a_participant_that_is_the_queues_database_is_the_receiving_connection(run, target, business, two_phase):
    same = []
    url = target.url + ("&" if "?" in target.url else "?") + "connect_timeout=9"  # another spelling of the same place

    run(None, endpoint=scope(lambda context: same.append(context.enlist("here") is context.connection), {"here": url}))

    assert same == [True]


def test_one_database_by_two_names_takes_part_once(run, business, two_phase, in_shop):
    def handle(context):
        assert context.enlist("shop") is context.enlist("again") is context.enlist("shop")
        write(context.enlist("again"), 7)

    (outcome,) = run(None, endpoint=scope(handle, {"shop": two_phase, "again": two_phase}))

    assert (outcome.kind, in_shop()) == (Kind.HANDLED, [7])


def test_a_connection_that_the_handler_brings_along_takes_part_and_is_its_own_again(run, business, two_phase, in_shop):
    with psycopg.connect(two_phase, autocommit=True) as mine:

        def handle(context):
            write(context.enlist(mine), 8)

        (outcome,) = run(None, endpoint=scope(handle, {"shop": two_phase}))
        after = (mine.autocommit, mine.info.transaction_status.name, mine.execute("SELECT 1").fetchone())

    assert (outcome.kind, in_shop()) == (Kind.HANDLED, [8])
    assert after == (True, "IDLE", (1,))


def test_a_connection_to_a_database_that_recovery_does_not_know_is_refused(
    run, business, two_phase, target, new_database
):
    url = new_database(target.label)
    with psycopg.connect(url) as mine:
        (outcome,) = run(None, endpoint=scope(lambda context: context.enlist(mine), {"shop": two_phase}))

    assert "SettingsError" in outcome.error


FAR = {"far": "postgresql://127.0.0.1:1/shop"}


def test_a_participant_out_of_reach_is_trouble_of_the_queue_and_no_attempt_of_the_message(
    run, queue, sql, database, business, two_phase
):
    sql.run("DELETE FROM rowpost.failure")

    for _ in range(3):
        with pytest.raises(ParticipantFailed, match="'far'"):
            run(None, endpoint=scope(lambda context: context.enlist("far"), FAR))

    assert (queue.peek(), bodies(database, "error"), database.in_transaction) == (3, [], False)
    assert sql.run("SELECT count(*) FROM rowpost.failure")[0][0] == 0


def test_a_handler_that_does_without_a_participant_out_of_reach_succeeds(run, business, two_phase):
    def handle(context):
        with suppress(ParticipantFailed):
            context.enlist("far")
        write(context.connection, 1)

    (outcome,) = run(None, endpoint=scope(handle, FAR))

    assert (outcome.kind, business()) == (Kind.HANDLED, [1])


def test_a_message_that_ends_its_connection_to_a_participant_that_answers_fails(run, queue, business, two_phase, sql):
    def handle(context):
        other = context.enlist("shop")
        sql.run("SELECT pg_terminate_backend(?, 5000)", other.info.backend_pid)
        write(other, 9)

    (outcome,) = run(None, endpoint=scope(handle, {"shop": two_phase}))

    assert (outcome.kind, queue.peek()) == (Kind.MOVED_TO_ERROR, 0)


# ------------------------------------------------------------------ a handler that begins another transaction
CHAINS = [
    ["ROLLBACK AND CHAIN"], ["COMMIT AND CHAIN"], ["ROLLBACK; BEGIN"], ["COMMIT; BEGIN"],
    ["SELECT 1; ROLLBACK; BEGIN; SELECT 1"], ["ROLLBACK", "BEGIN"],
]  # fmt: skip
CHAINS_OF_SQLSERVER = [
    ["ROLLBACK; BEGIN TRANSACTION"], ["COMMIT; BEGIN TRANSACTION"], ["ROLLBACK", "BEGIN TRANSACTION"],
    ["SELECT 1; COMMIT; BEGIN TRANSACTION; SELECT 1"],
]  # fmt: skip


@pytest.mark.parametrize("statements", CHAINS, ids="; ".join)
@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_a_handler_that_ends_its_transaction_and_begins_another_fails_and_sends_nothing(
    run, queue, database, business, mode, swallowed, statements
):
    if database.engine != "postgresql":
        pytest.skip("only the driver of PostgreSQL shows which command ended a transaction")

    def handle(context):
        for statement in statements:
            with suppress(HandlerBrokeTransaction) if swallowed else nullcontext():
                context.connection.execute(statement)

    (outcome,) = run(mode, handle)

    committed = any("COMMIT" in statement for statement in statements)
    assert outcome.kind is (Kind.MOVED_TO_ERROR if committed else Kind.FAILED)
    assert "HandlerBrokeTransaction" in outcome.error
    assert (bodies(database, "Billing"), queue.peek()) == ([], 0 if committed else 1)
    assert business() == ([1] if committed else [])


@pytest.mark.parametrize("statements", CHAINS_OF_SQLSERVER, ids="; ".join)
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_on_sql_server_too_such_a_handler_sends_nothing_and_its_message_exists_once(
    run, queue, database, business, mode, raises, statements
):
    if database.engine != "sqlserver":
        pytest.skip("PostgreSQL: the test above")

    def handle(context):
        for statement in statements:
            context.connection.execute(statement)
        if raises:
            raise ValueError("no such order")

    (outcome,) = run(mode, handle)

    assert (outcome.kind, "HandlerBrokeTransaction" in outcome.error) == (Kind.MOVED_TO_ERROR, True)
    assert (bodies(database, "Billing"), queue.peek(), bodies(database, "error")) == ([], 0, [b'{"Number":1}'])
    assert business() == ([1] if any("COMMIT" in statement for statement in statements) else [])


@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_on_sql_server_a_message_that_ends_its_own_session_is_counted(run, sql, database, business, mode):
    if database.engine != "sqlserver":
        pytest.skip("PostgreSQL: tests/workers/test_lost_connection.py")
    sql.run("DELETE FROM rowpost.failure")

    def end(context):
        sql.run(f"KILL {context.connection.execute('SELECT @@SPID').fetchval()}")
        context.connection.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        run(mode, end)

    assert [row[0] for row in sql.run("SELECT attempts FROM rowpost.failure WHERE queue_key = 'Sales'")] == [1]
    assert ([row[0] for row in sql.run(f"SELECT COUNT(*) FROM {sql.table('Sales')}")], business()) == ([1], [])


@pytest.mark.parametrize(
    "roll_back",
    ["ROLLBACK TO SAVEPOINT mine", "rollback work to mine", "SELECT 1; ROLLBACK TO mine", b"ROLLBACK TO mine"],
)
def test_a_handler_may_roll_back_to_its_own_savepoint(run, database, business, roll_back):
    if database.engine != "postgresql":
        pytest.skip("the statements are PostgreSQL's")

    def handle(context):
        context.connection.execute("SAVEPOINT mine")
        write(context.connection, 2)
        context.connection.execute(roll_back)

    (outcome,) = run("sends_atomic_with_receive", handle)

    assert (outcome.kind, business()) == (Kind.HANDLED, [1])


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "END", "commit work"])
def test_sql_that_ends_a_participants_transaction_fails_the_message(run, business, two_phase, statement):
    (outcome,) = run(
        None, endpoint=scope(lambda context: context.enlist("shop").execute(statement), {"shop": two_phase})
    )

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "HandlerBrokeTransaction" in outcome.error
    assert business() == []


@pytest.mark.parametrize("verb", ["commit", "rollback", "close"])
def test_a_participants_connection_refuses_to_be_ended_and_nothing_is_lost(run, business, two_phase, in_shop, verb):
    def handle(context):
        other = context.enlist("shop")
        write(other, 9)
        with pytest.raises(HandlerBrokeTransaction):
            getattr(other, verb)()

    (outcome,) = run(None, endpoint=scope(handle, {"shop": two_phase}))

    assert (outcome.kind, in_shop()) == (Kind.HANDLED, [9])


def test_an_error_swallowed_at_a_participant_fails_the_message(run, queue, business, two_phase, in_shop, database):
    def handle(context):
        write(context.connection, 1)
        other = context.enlist("shop")
        write(other, 9)
        with pytest.raises(psycopg.Error):
            other.execute("SELECT no_such_column")

    (outcome,) = run(None, endpoint=scope(handle, {"shop": two_phase}))

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "doomed" in outcome.error
    assert (business(), in_shop(), list_in_doubt(database, {"shop": two_phase})) == ([], [], ([], {}))


def test_what_cannot_be_prepared_undoes_everything(run, business, two_phase, database):
    def handle(context):
        write(context.connection, 1)
        context.enlist("shop").execute("CREATE TEMPORARY TABLE scratch (number integer)")

    (outcome,) = run(None, endpoint=scope(handle, {"shop": two_phase}))

    assert "ParticipantFailed" in outcome.error
    assert (business(), list_in_doubt(database, {"shop": two_phase}), database.call("list_decisions")) == (
        [],
        ([], {}),
        [],
    )


def test_each_commit_that_cannot_be_prepared_counts_as_an_attempt(run, queue, business, two_phase):
    def handle(context):
        context.enlist("shop").execute("CREATE TEMPORARY TABLE scratch (number integer)")

    endpoint = scope(handle, {"shop": two_phase})
    endpoint.recoverability = Recoverability(immediate_retries=1, delayed_retries=0)
    outcomes = run(None, endpoint=endpoint, times=2)

    assert [(each.kind, each.attempts) for each in outcomes] == [(Kind.FAILED, 1), (Kind.MOVED_TO_ERROR, 2)]
    assert queue.peek() == 0


# ------------------------------------------------------------------ the isolation level
@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_the_isolation_level_of_a_handler_is_read_committed(run, target, database, business, mode):
    if target.babelfish:
        pytest.skip("Babelfish does not tell the level of a session")
    levels = []

    def note(context):
        if database.engine == "postgresql":
            levels.append(context.connection.execute("SHOW transaction_isolation").fetchone()[0])
        else:
            of_session = "SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
            levels.append({2: "read committed"}.get(context.connection.execute(of_session).fetchone()[0]))

    run(mode, note)

    assert levels == ["read committed"]


@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_a_handler_cannot_choose_another_isolation_level_on_postgresql(run, database, business, mode):
    if database.engine != "postgresql":
        pytest.skip("SQL Server allows it for the statements that follow")

    outcomes = run(mode, lambda context: context.connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))

    assert [each.kind for each in outcomes] == [Kind.FAILED]
    assert "ActiveSqlTransaction" in outcomes[0].error


# ------------------------------------------------------------------ transactions of the handler's own
@pytest.mark.parametrize("mode", TRANSACTIONAL)
@pytest.mark.parametrize("commits", [True, False])
def test_what_a_handler_sends_on_a_connection_of_its_own_leaves_with_that_connections_commit(
    run, target, database, business, mode, commits
):
    def handle(context):
        with connect_url(target.settings.engine, target.url) as own:
            own.driver_connection.autocommit = False
            with context.endpoint.open(own.driver_connection) as bus:
                bus.send(Order(7), to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})
            own.driver_connection.commit() if commits else own.driver_connection.rollback()
        fail(context)

    run(mode, handle)

    assert bodies(database, "Billing") == ([b'{"Number":7}'] if commits else [])


# ------------------------------------------------------------------ headers that a policy changes
@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_what_a_policy_does_to_headers_reaches_neither_the_retry_nor_the_error_queue(run, database, business, mode):
    seen = []

    def policy(failure):
        failure.headers["NServiceBus.EnclosedMessageTypes"] = "modified"
        failure.headers["Added"] = "by the policy"
        return Decision.RETRY if failure.attempts < 2 else Decision.ERROR

    def note_and_fail(context):
        seen.append((context.headers["NServiceBus.EnclosedMessageTypes"], context.headers.get("Added")))
        fail(context)

    endpoint = endpoint_of("Sales", mode, {}, then=note_and_fail)
    endpoint.recoverability = Recoverability(policy=policy)
    run(mode, endpoint=endpoint, times=2)

    (error,) = Queue("error", database).browse()
    assert seen == [(TYPE, None), (TYPE, None)]
    assert (error.headers["NServiceBus.EnclosedMessageTypes"], error.headers.get("Added")) == (TYPE, None)


# ------------------------------------------------------------------ what a handler must not do with its connection
@pytest.mark.parametrize("mode", TRANSACTIONAL)
@pytest.mark.parametrize("verb", ["commit", "rollback", "close"])
def test_the_lent_connection_refuses_to_be_ended_and_the_message_is_handled_all_the_same(
    run, database, business, mode, verb
):
    if database.engine != "postgresql":
        pytest.skip("pyodbc's connections take no attributes: what a handler did is found afterwards")

    def end(context):
        with pytest.raises(HandlerBrokeTransaction, match="it was given"):
            getattr(context.connection, verb)()

    (outcome,) = run(mode, end)

    assert (outcome.kind, business()) == (Kind.HANDLED, [1])
    database.driver_connection.commit()
    assert not database.closed


@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_a_connection_used_as_a_block_is_refused_too(run, queue, database, business, mode):
    if database.engine != "postgresql":
        pytest.skip("pyodbc's connections take no attributes: what a handler did is found afterwards")

    def use_as_block(context):
        with context.connection:
            pass

    (outcome,) = run(mode, use_as_block)

    assert outcome.kind is Kind.FAILED
    assert "HandlerBrokeTransaction" in outcome.error
    assert (business(), queue.peek()) == ([], 1)


def test_transaction_blocks_of_psycopg_are_savepoints_and_allowed(run, database, business):
    if database.engine != "postgresql":
        pytest.skip("psycopg only")

    def undo_a_part(context):
        with pytest.raises(ZeroDivisionError), context.connection.transaction():
            write(context.connection, 2)
            raise ZeroDivisionError
        with context.connection.transaction():
            write(context.connection, 3)

    (outcome,) = run("sends_atomic_with_receive", undo_a_part)

    assert (outcome.kind, business()) == (Kind.HANDLED, [1, 3])


@pytest.mark.parametrize(("statement", "kind", "waiting"), [
    ("ROLLBACK", Kind.FAILED, 1), ("COMMIT", Kind.MOVED_TO_ERROR, 0),
])  # fmt: skip
def test_sql_that_ends_the_transaction_is_seen_and_the_message_exists_once(
    run, queue, database, business, statement, kind, waiting
):
    if database.engine != "postgresql":
        pytest.skip("what ended a transaction of SQL Server is not told: the message moves at once")

    (outcome,) = run("sends_atomic_with_receive", lambda context: context.connection.execute(statement))

    assert outcome.kind is kind
    assert "HandlerBrokeTransaction" in outcome.error
    assert (queue.peek(), len(bodies(database, "error"))) == (waiting, 1 - waiting)


@pytest.mark.parametrize("mode", ATOMIC)
@pytest.mark.parametrize("statement", ["ROLLBACK", "COMMIT"])
def test_a_handler_that_ends_the_transaction_sends_nothing(run, database, business, mode, statement):
    def end_and_go_on(context):
        with suppress(HandlerBrokeTransaction):
            context.connection.execute(statement)

    (outcome,) = run(mode, end_and_go_on)

    assert "HandlerBrokeTransaction" in outcome.error
    assert bodies(database, "Billing") == []


def test_a_row_that_another_worker_took_after_a_roll_back_is_not_copied_to_the_error_queue(
    queue, database, business, open_database
):
    if database.engine != "postgresql":
        pytest.skip("what ended a transaction of SQL Server is not told: the message moves at once")
    other = open_database()

    def roll_back(message, connection):
        with pytest.raises(HandlerBrokeTransaction):
            connection.execute("ROLLBACK")
        other.call("receive_messages", "Sales", begin=True, count=1)

    queue.send(b"42")
    pipeline = pipeline_with(database, "Sales", roll_back, attempts=1, reconnect=database.open_second)
    outcome = pipeline.process_one()
    other.rollback()

    assert outcome.kind is Kind.FAILED
    assert (queue.peek(), bodies(database, "error")) == (1, [])


# ------------------------------------------------------------------ settings
def test_secrets_of_participants_come_from_the_process_environment(monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "s3cret")

    found = resolve_participants(
        {"shop": "postgresql://a", "books": "x"}, {"shop": "postgresql://app:${SHOP_PASSWORD}@db/shop"}
    )

    assert found == {"shop": "postgresql://app:s3cret@db/shop", "books": "x"}


def test_a_secret_that_is_not_set_is_named(monkeypatch):
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)

    with pytest.raises(SettingsError, match="SHOP_PASSWORD"):
        resolve_participants({"shop": "postgresql://app:${SHOP_PASSWORD}@db/shop"})


@pytest.mark.parametrize(("places", "begin"), [
    ({}, True), ({"shop": "shop"}, True), ({"shop": "[my.shop]"}, True),
    ({"shop": "sql02.shop"}, "distributed"), ({"shop": "[sql.02].[shop]"}, "distributed"),
])  # fmt: skip
def test_a_participant_on_a_linked_server_makes_the_transaction_a_distributed_one(places, begin):
    assert begin_scope("sqlserver", places) == begin
    assert begin_scope("postgresql", places) is True


# ------------------------------------------------------------------ sagas
@pytest.fixture
def ledger(make_desk, shop):
    """A saga in mode `transaction_scope` with the instance A, whose gates may write into the other database."""
    desk = make_desk(mode="transaction_scope", participants={"shop": shop})
    desk.handle(Open("A"))
    return desk


def write_in_shop(context, shop):
    write(context.enlist("shop"), 1, "" if "://" in shop else f"{shop}.dbo.")


def test_a_participant_that_cannot_be_prepared_undoes_the_change_of_a_saga(ledger, shop, in_shop):
    if "://" not in shop:
        pytest.skip("SQL Server prepares by itself what its connection reached")

    def write_and_spoil(saga, context):
        write_in_shop(context, shop)
        context.enlist("shop").execute("CREATE TEMPORARY TABLE spoilt (number integer)")  # cannot be prepared

    GATES["shop"] = write_and_spoil

    outcome = ledger.handle(Add("A", 5, "shop"))

    assert outcome.kind is Kind.FAILED
    assert ([(row[1], row[2]["Total"]) for row in ledger.rows], in_shop()) == ([(1, 0)], [])


def test_a_saga_that_cannot_be_stored_undoes_what_was_written_in_a_participant(ledger, shop, in_shop):
    def write_and_overtake(saga, context):
        write_in_shop(context, shop)
        context.database.call("complete_saga", ledger.table, id=saga.id, concurrency=1)  # as another message would

    GATES["shop"] = write_and_overtake

    outcome = ledger.handle(Add("A", 5, "shop"))

    assert (outcome.kind, "SagaConflict" in outcome.error) == (Kind.FAILED, True)
    assert ([(row[1], row[2]["Total"]) for row in ledger.rows], in_shop()) == ([(1, 0)], [])
