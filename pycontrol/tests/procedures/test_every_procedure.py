"""What holds for every procedure of the contract, on every engine: sql/tests says the same of T-SQL alone.

A procedure that the contract has and CALLS has not fails the first test.
"""

import re
from contextlib import nullcontext
from dataclasses import replace

import pytest

from rowpost.database.contract import load_contract
from rowpost.deploy.apply import apply
from rowpost.deploy.entries import describe_queue, describe_saga
from rowpost.deploy.plan import plan
from rowpost.errors import (
    DatabaseError,
    InvalidMessage,
    InvalidReport,
    InvalidSchedule,
    JobKeyUsed,
    QueueNotFound,
    ScheduleNotFound,
    SpoolTaken,
    ValueTooLong,
)
from rowpost.settings.environment import QueueSettings
from tests.support.probe import probe_for
from tests.support.procedure_calls import CALLS, ID, SAGA

HOSTILE = "x'); DROP TABLE rowpost.queue; --"
NO_QUEUE = (QueueNotFound, re.escape(f"No queue named '{HOSTILE}'"))
NO_TABLE = (QueueNotFound, "There is no queue table")
#: the parameters that refuse HOSTILE, with the error and its reason; all others accept it as a value
REFUSED_EVERYWHERE = {
    ("database", "register_queue", "kind"): (DatabaseError, "(?i)check constraint"),
    **{
        ("database", procedure.name, "queue_name"): NO_QUEUE
        for procedure in load_contract().procedures
        if procedure.scope == "database" and procedure.name != "register_queue"
        if "queue_name" in [parameter.name for parameter in procedure.parameters]
    },
    **{
        ("database", name, place): NO_TABLE
        for name in ("send_unregistered", "send_to_subscriber")
        for place in ("schema_name", "table_name")
    },
    **{
        ("database", "report_supervisor", place): (InvalidReport, "must have a JSON array")
        for place in ("queues", "workers")
    },
    ("queue", "renew_leases", "leases"): (InvalidReport, "must be a JSON array"),
    ("queue", "confirm_spool", "owner"): (SpoolTaken, "taken over the spool"),
    ("queue", "drop_spool", "owner"): (SpoolTaken, "belongs to another stream"),
    ("database", "seal_job", "job_key"): (JobKeyUsed, "There is no job"),
    ("database", "settle_ledger", "job_key"): (JobKeyUsed, "has ended or was forgotten"),
    ("database", "stage_messages", "attempt"): (JobKeyUsed, "another run of it has begun"),
    ("database", "register_schedule", "missed"): (InvalidSchedule, "skip, once or all"),
    ("database", "control_schedule", "schedule_name"): (ScheduleNotFound, "No schedule named"),
    ("database", "begin_job", "mode"): (ValueTooLong, "its mode 20"),
    ("database", "register_saga", "correlation_type"): (ValueTooLong, "types 10"),
    **{
        ("saga", name, version): (ValueTooLong, "at most 23 characters")
        for name in ("insert_saga", "update_saga")
        for version in ("persistence_version", "saga_type_version")
    },
}
TOO_LONG = ((DatabaseError, ValueTooLong), "too long|truncated")
NO_JSON = (InvalidMessage, "invalid input syntax for type json")
REFUSED = {
    "postgresql": REFUSED_EVERYWHERE | {("saga", name, "data"): NO_JSON for name in ("insert_saga", "update_saga")},
    # there, a saga's state is a column of text, and kinds are columns of ten characters
    "sqlserver": REFUSED_EVERYWHERE
    | {
        ("database", "register_queue", "kind"): TOO_LONG,
        ("database", "record_script", "script_kind"): TOO_LONG,
    },
}
#: what may stand in the tables before, so that a removal has something to remove
BEFORE = (
    "record_failure", "subscribe", "record_decision", "record_handled", "store_operations", "record_dispatch", "claim_ledger",
    "stage_messages",
)  # fmt: skip
#: a schedule that the calls find
HOURLY = """
    INSERT INTO rowpost.schedule
    (schedule_name, queue_key, destination, message_type, interval_ms, zone, missed, ticked_to, requested_at, is_paused, changed_by, changed_at)
    SELECT 'hourly', q.queue_key, 'Sales', 'Shop.Count', 3600000, 'UTC', 'all', '1970-01-01', '1970-01-01', q.body_string, 'me', '1970-01-01'
    FROM rowpost.queue AS q
    WHERE q.queue_name = 'Sales'
"""
PROCEDURES = sorted((procedure.scope, procedure.name) for procedure in load_contract().procedures)


@pytest.fixture(scope="module")
def saga_table(target):
    """The saga's table, deployed."""
    with target.connect() as database:
        apply(database, plan(replace(target.settings, sagas=(SAGA,))))
        entry = describe_saga(SAGA, target.settings.engine)
        return entry.placeholders(database.dialect)["saga_table"]


@pytest.fixture
def call(database, target, queue, sql, saga_table):
    """Calls a procedure with the arguments above, some of them exchanged."""

    def run(scope, name, **exchanged):
        arguments = {**CALLS[scope][name], **exchanged}
        if arguments.get("schema_name") == "the default":
            arguments["schema_name"] = target.settings.default_schema
        if arguments.get("row_version") == "the first":
            arguments["row_version"] = queue.browse()[0].row_version
        if arguments.get("token") == "of the lease":
            queue.send(b"leased")
            arguments["token"] = database.call("lease_messages", "Sales", **CALLS["queue"]["lease_messages"])[0][5]
        return database.call(name, {"queue": "Sales", "saga": SAGA.name}.get(scope), **arguments)

    sql.run(f"DELETE FROM {saga_table}")
    for table in ("spool", "job", "job_part", "schedule"):
        sql.run(f"DELETE FROM rowpost.{table}")
    content = {**CALLS["saga"]["insert_saga"], "id": ID, "correlation_value": "A"}
    database.call("insert_saga", SAGA.name, **content)
    database.call("move_to_spool", "Sales", owner="stream-1", count=10)
    database.call("begin_job", **CALLS["database"]["begin_job"])
    sql.run(HOURLY)
    return run


@pytest.fixture
def content(database, target, queue, call, saga_table):
    """Everything that the procedures could change."""
    sales = describe_queue(QueueSettings("Sales"), target.settings.engine).placeholders(database.dialect)
    routing = 'public."SubscriptionRouting"' if target.settings.engine == "postgresql" else "dbo.SubscriptionRouting"
    names = "journal version queue saga failure decision queue_ownership outbox outbox_operations dispatch purge"
    names += " spool spooled_message ledger staged_message job job_part schedule"
    own = (f"rowpost.{name}" for name in names.split())
    tables = (*own, routing, sales["queue_table"], sales["delayed_table"], sales["leased_table"], saga_table)
    probe = probe_for(database, babelfish=target.babelfish)

    def read():
        return {table: sorted(map(repr, probe.run(f"SELECT * FROM {table}"))) for table in tables}

    queue.send(b"x")
    return read


def test_every_procedure_of_the_contract_is_called_here():
    assert sorted((scope, name) for scope, calls in CALLS.items() for name in calls) == PROCEDURES


@pytest.mark.parametrize(("scope", "name"), PROCEDURES)
def test_a_procedure_leaves_the_callers_session_and_transaction_as_they_were(
    database, target, queue, call, scope, name
):
    probe = probe_for(database, babelfish=target.babelfish)
    queue.send(b"x")
    database.begin()
    before = probe.session_settings()

    call(scope, name)

    assert probe.session_settings() == before
    assert database.in_transaction
    database.rollback()


@pytest.mark.parametrize(("scope", "name"), PROCEDURES)
def test_what_a_procedure_did_is_undone_by_the_callers_rollback(database, call, content, scope, name):
    database.begin()
    for each in BEFORE:
        if each != name:
            call("database", each)
    before = content()

    with pytest.raises(ZeroDivisionError), database.transaction():
        call(scope, name)
        raise ZeroDivisionError

    assert content() == before
    database.rollback()


@pytest.mark.parametrize(
    ("scope", "name", "parameter"),
    [
        (procedure.scope, procedure.name, parameter.name)
        for procedure in load_contract().procedures
        for parameter in procedure.parameters
        if parameter.type in ("string", "text") and parameter.name in CALLS[procedure.scope][procedure.name]
    ],
)
def test_text_that_looks_like_sql_is_text(database, call, content, scope, name, parameter):
    database.begin()
    before = content()["rowpost.queue"]
    refused = REFUSED[database.engine].get((scope, name, parameter))
    expected = pytest.raises(refused[0], match=refused[1]) if refused else nullcontext()

    with expected as raised, database.transaction():
        call(scope, name, **{parameter: HOSTILE})

    assert raised is None or type(raised.value) in (refused[0] if isinstance(refused[0], tuple) else refused[:1])
    assert set(before) <= set(content()["rowpost.queue"])
    database.rollback()


def test_each_refusal_of_text_is_of_a_parameter_that_exists():
    known = {
        (procedure.scope, procedure.name, parameter.name)
        for procedure in load_contract().procedures
        for parameter in procedure.parameters
    }

    assert {engine: refusals.keys() - known for engine, refusals in REFUSED.items()} == {
        "postgresql": set(),
        "sqlserver": set(),
    }
