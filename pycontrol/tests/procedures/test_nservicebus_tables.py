"""Tables that NServiceBus's installers made, as queues: each operation, however the queue is declared, and none of them changed."""

from dataclasses import dataclass

import pytest

from rowpost.database.connection import connect_url
from rowpost.database.contract import load_contract
from rowpost.deploy.entries import describe_queue
from rowpost.deploy.queues import create_queue, forget_queue
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import DatabaseError, RowpostError
from rowpost.recoverability.outcome import Kind
from rowpost.settings.environment import QueueSettings
from rowpost.transport.delayed import move_due
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message import OutgoingMessage
from rowpost.wire.message_types import message_type
from tests.support.nservicebus_tables import TABLES
from tests.support.pipelines import pipeline_with
from tests.support.probe import probe_for
from tests.support.procedure_calls import CALLS
from tests.support.unregistered import send_unregistered

VARIANTS = sorted({name for tables in TABLES.values() for name in tables})


@message_type("Shop.Moved")
@dataclass
class Moved:
    number: int


@pytest.fixture(params=VARIANTS)
def variant(request, target):
    if request.param not in TABLES[target.settings.engine]:
        pytest.skip(f"no installer of the transport for {target.settings.engine} makes such a table")
    return request.param


@pytest.fixture(params=["own", "adopted", "external"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def install(target):
    """Makes the tables of a queue as an installer does; they are dropped with the queue at the end of the file."""
    with target.connect() as database:
        sql = probe_for(database, babelfish=target.babelfish)
        made = set()

        def run(variant="as installed", name="Net.Sales"):
            sql.drop_queue(name)
            for statement in statements(database, target, variant, name):
                sql.run(statement)
            made.add(name)
            return name

        yield run
        for name in made:
            sql.drop_queue(name)


def statements(database, target, variant, name):
    address = parse_address(name)
    schema = address.schema or target.settings.default_schema
    return TABLES[database.engine][variant].statements(database.dialect, schema, address.table)


def declare(database, name, kind, variant="as installed"):
    """Declare a queue for a table that is there."""
    create_queue(database, name, kind=kind, delayed=bool(TABLES[database.engine][variant].delayed))
    return Queue(name, database)


@pytest.fixture(scope="module")
def names():
    """The queues that were declared, by engine, form of the table and kind: a deployment takes half a minute on Babelfish."""
    return {}


@pytest.fixture
def declared(target, database, sql, install, names, variant, kind):
    """A queue on a table of each form, declared in each way, empty."""
    if target.babelfish and kind == "own" and variant != "as installed":
        pytest.skip("Babelfish takes half a minute to deploy a queue, and an adopted one has the same procedures")
    key = (target.label, variant, kind)
    if key not in names:
        names[key] = declare(database, install(variant, f"Net.{kind} {variant}"), kind, variant).name
    sql.empty(names[key])
    return Queue(names[key], database)


def has_recoverable(sql, name):
    return "recoverable" in map(str.lower, sql.columns(name))


def insert_as_nservicebus(sql, name, body):
    """Store a row by plain SQL, as the transport does."""
    if sql.database.engine == "postgresql":
        sql.run(f"INSERT INTO {sql.table(name)} (Id, Headers, Body) VALUES (gen_random_uuid(), '{{}}', ?)", body)
    else:
        column, one = (", Recoverable", ", 1") if has_recoverable(sql, name) else ("", "")
        sql.run(
            f"INSERT INTO {sql.table(name)} (Id, Headers, Body{column}) VALUES (NEWID(), N'{{}}', 0x{body.hex()}{one})"
        )


def operations(database, name, kind, variant):
    """The calls of all procedures that the queue has, by name."""
    settings = QueueSettings(name, kind, delayed=bool(TABLES[database.engine][variant].delayed))
    contract = load_contract()
    procedures = describe_queue(settings, database.engine).procedures(contract, contract.features)
    return {procedure.name: CALLS["queue"][procedure.name] for procedure in procedures}


def test_each_operation_of_a_queue_runs_on_a_table_that_an_installer_made(declared, database, sql, variant, kind):
    insert_as_nservicebus(sql, declared.name, b"x")
    failed = {}

    for procedure, arguments in operations(database, declared.name, kind, variant).items():
        database.begin()
        try:
            if arguments.get("row_version") == "the first":
                arguments = {"row_version": sql.value(f"SELECT {sql.ROW_VERSION} FROM {sql.table(declared.name)}")}
            if "spool" in procedure:
                database.call("move_to_spool", declared.name, owner="stream-1", count=10)
            database.call(procedure, declared.name, **arguments)
        except RowpostError as error:
            failed[procedure] = str(error)
        database.rollback()

    assert failed == {}


def test_what_is_sent_in_each_way_is_stored(declared, database, sql, kind):
    database.call("subscribe", endpoint="Net.Sales", topic="Shop.Moved", queue_address=declared.name)
    database.call("stage_messages", job_key="job-1", attempt="run-1/0", messages=[OutgoingMessage(b"staged")])

    declared.send(b"sent")
    declared.send_many([OutgoingMessage(b"many 1"), OutgoingMessage(b"many 2")])
    database.call("send_message", queue_name=declared.name, headers="{}", body=b"by name")
    send_unregistered(database, declared.name, b"undeclared")
    database.call("send_staged", declared.name, job_key="job-1", attempts=["run-1/0"])
    database.call("publish_message", topics=["Shop.Moved"], headers="{}", body=b"published")

    bodies = [b"sent", b"many 1", b"many 2", b"by name", b"undeclared", b"staged", b"published"]
    assert sql.column_values(declared.name, "Body") == bodies
    if has_recoverable(sql, declared.name):
        assert set(sql.column_values(declared.name, "Recoverable")) == {True}
    if kind != "external":
        assert [message.body for message in declared.receive(10)] == bodies


def test_a_message_that_was_delayed_moves_into_a_table_that_an_installer_made(database, install, sql):
    queue = declare(database, install(), "adopted")

    database.call("delay_message", queue.name, headers="{}", body=b"later", delay_ms=-1)
    move_due(database, queue.name)

    assert sql.column_values(queue.name, "Body") == [b"later"]


@pytest.mark.parametrize("undeclared", [False, True], ids=["declared", "undeclared"])
def test_a_publish_reaches_every_subscriber_whoever_made_its_table(database, queue, install, sql, undeclared):
    theirs = install()
    if not undeclared:
        create_queue(database, theirs, kind="external")
    for name in ("Sales", theirs):
        database.call("subscribe", endpoint=name, topic="Shop.Moved", queue_address=name)
    bus = Endpoint("Shop", send_only=True)

    with bus.open(database) as session:
        session.publish(Moved(1))

    copies = [sql.column_values(name, "Body") for name in ("Sales", theirs)]
    assert copies == [[b'{"Number":1}']] * 2


@pytest.mark.parametrize("name", ["error.of.net", "error@[receiver]"])
def test_a_failed_message_moves_to_an_error_queue_of_nservicebus_and_returns(database, queue, install, sql, name, kind):
    make_schema(sql, "receiver")
    errors = declare(database, install(name=name), kind)
    queue.send(b"{}", {"NServiceBus.MessageId": "m-1"})

    (moved,) = attempts(database, failing, error_queue=name)
    (row,) = errors.browse()
    returned_to = ErrorQueue(database, name).retry(row.row_version)

    assert moved.kind is Kind.MOVED_TO_ERROR
    assert (row.body, row.headers["NServiceBus.FailedQ"]) == (b"{}", database.canonical(parse_address("Sales")))
    assert returned_to == "Sales"
    assert ([message.body for message in queue.receive(5)], errors.browse()) == ([b"{}"], [])


def failing(message, connection):
    raise ValueError("no such order")


def attempts(database, handler, error_queue):
    pipeline = pipeline_with(database, "Sales", handler, attempts=1, error_queue=error_queue)
    return [pipeline.process_one()]


def make_schema(sql, name):
    if not sql.value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?", name):
        sql.run(f"CREATE SCHEMA {name}{' AUTHORIZATION dbo' if sql.database.engine == 'sqlserver' else ''}")


def test_a_failed_message_moves_to_an_error_queue_that_nservicebus_made_in_another_database(
    database, queue, new_database
):
    if database.engine == "postgresql":
        pytest.skip("PostgreSQL cannot reach into another database")
    with connect_url("sqlserver", new_database("sqlserver"), "rowpost tests") as other:
        theirs = probe_for(other)
        for statement in TABLES["sqlserver"]["as installed"].statements(other.dialect, "dbo", "error"):
            theirs.run(statement)
        name = f"error@[dbo]@[{theirs.value('SELECT DB_NAME()')}]"
        create_queue(database, name, kind="external")
        queue.send(b"{}", {"NServiceBus.MessageId": "m-1"})

        (moved,) = attempts(database, failing, error_queue=name)

        assert moved.kind is Kind.MOVED_TO_ERROR
        assert theirs.run("SELECT Recoverable, Body FROM dbo.error") == [(True, b"{}")]
    forget_queue(database, name)


def test_a_route_leads_to_a_queue_of_nservicebus_in_another_schema(database, install, sql):
    make_schema(sql, "receiver")
    name = install(name="Receiver@[receiver]")
    endpoint = Endpoint("Shop", send_only=True)
    endpoint.route(Moved, to=name)

    with endpoint.open(database) as session:
        session.send(Moved(1))

    assert sql.column_values(name, "Body") == [b'{"Number":1}']


def test_a_header_that_tells_the_time_to_be_received_lets_no_message_expire(queue):
    queue.send(b"x", {"NServiceBus.TimeToBeReceived": "-00:01:00"})

    assert [(message.expires, message.expired) for message in queue.browse()] == [(None, False)]


DROP_INDEXES = {
    "postgresql": 'ALTER TABLE {0} DROP CONSTRAINT "Net.Unindexed_seq_key"',
    "sqlserver": "DROP INDEX Index_RowVersion ON {0}; DROP INDEX Index_Expires ON {0}",
}
COUNT_INDEXES = {
    "postgresql": "SELECT COUNT(*) FROM pg_index AS i WHERE i.indrelid = CAST(? AS regclass)",
    "sqlserver": "SELECT COUNT(*) FROM sys.indexes AS i WHERE i.object_id = OBJECT_ID(?) AND i.index_id > 0",
}


@pytest.mark.parametrize("kind", ["own", "adopted"])
def test_a_deployment_makes_no_index_on_a_table_that_is_there_and_a_finding_has_the_statement(
    database, install, sql, kind
):
    name = install(name="Net.Unindexed")
    table = sql.table(name)
    sql.run(DROP_INDEXES[database.engine].format(table))
    before = sql.value(COUNT_INDEXES[database.engine], table)

    queue = declare(database, name, kind)
    after = sql.value(COUNT_INDEXES[database.engine], table)
    findings = {row.finding: row.remedy for row in database.call("check_queue", queue_name=name)}
    for finding in ("row_version_index_missing", "expires_index_missing"):
        sql.run(findings[finding])
    queue.send(b"x")

    assert after == before
    assert all("reads the whole table" in findings[each] for each in findings if each.endswith("_index_missing"))
    assert not [row for row in database.call("check_queue", queue_name=name) if row.finding.endswith("_index_missing")]
    assert [message.body for message in queue.receive(5)] == [b"x"]


# ------------------------------------------------------------------ the column Recoverable, on SQL Server
def only_sqlserver(database):
    if database.engine == "postgresql":
        pytest.skip("PostgreSQL's tables have no column Recoverable")


def test_recoverable_may_be_dropped_and_added_again_on_a_table_that_nservicebus_made(
    target, database, install, sql, kind
):
    only_sqlserver(database)
    queue = declare(database, install(), kind)
    queue.send(b"with it")

    sql.run(f"ALTER TABLE {sql.table(queue.name)} DROP COLUMN Recoverable")
    fails_until_the_next_deployment(target, database, queue, kind)
    queue.send(b"without it")
    sql.empty(queue.name)
    sql.run(f"ALTER TABLE {sql.table(queue.name)} ADD Recoverable bit NOT NULL")
    fails_until_the_next_deployment(target, database, queue, kind)
    queue.send(b"with it again")

    assert sql.column_values(queue.name, "Body") == [b"with it again"]
    assert sql.column_values(queue.name, "Recoverable") == [True]


def fails_until_the_next_deployment(target, database, queue, kind):
    found = [row.finding for row in database.call("check_queue", queue_name=queue.name)]
    with pytest.raises(DatabaseError, match=r"Recoverable.* run rowpost apply"):
        queue.send(b"refused")
    target.deploy(QueueSettings(queue.name, kind))
    assert "recoverable_changed" in found
    assert "recoverable_changed" not in [row[1] for row in database.call("check_queue", queue_name=queue.name)]


def test_recoverable_may_be_dropped_and_added_again_on_a_table_of_rowpost_without_a_deployment(
    database, make_queue, sql
):
    only_sqlserver(database)
    queue = make_queue()
    queue.send(b"with it")

    sql.drop_column(queue.name, "Recoverable")
    queue.send(b"without it")
    sql.run(f"ALTER TABLE {sql.table(queue.name)} ADD Recoverable bit NOT NULL DEFAULT (1)")
    queue.send(b"with it again")

    assert sql.column_values(queue.name, "Body") == [b"with it", b"without it", b"with it again"]
    assert sql.column_values(queue.name, "Recoverable") == [True, True, True]
