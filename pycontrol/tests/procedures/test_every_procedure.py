"""What holds for every procedure of the contract, on every engine: sql/tests says the same of T-SQL alone.

A procedure that the contract has and CALLS has not fails the first test.
"""

import re
from contextlib import nullcontext
from dataclasses import replace
from uuid import UUID

import pytest

from rowpost.database.contract import load_contract
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.queue_entry import describe_queue, queue_names
from rowpost.deploy.saga_entry import describe_saga, saga_names
from rowpost.errors import DatabaseError, InvalidMessage, QueueNotFound, SpoolTaken
from rowpost.settings.environment import QueueSettings, SagaSettings
from rowpost.wire.message import OutgoingMessage
from tests.support.probe import probe_for

HOSTILE = "x'); DROP TABLE rowpost.queue; --"
ID = UUID("aaaaaaaa-0000-0000-0000-000000000001")
HANDLED = {"endpoint": "Sales", "message_id": "m-1"}
SUBSCRIPTION = {"endpoint": "Shop", "topic": "Shop.OrderPlaced"}
ENTRY = {
    "queue_key": "New", "queue_name": "New", "schema_name": "app", "table_name": "New",
    "kind": "own", "body_string": False, "clustered": True, "delayed": False,
}  # fmt: skip
SAGA = SagaSettings("EverySaga", "Key", transitional="Other", transitional_type="string")
SAGA_ENTRY = {
    "saga_key": "New", "saga_name": "New", "schema_name": "app", "table_name": "New", "correlation_name": "Key", "correlation_type": "string",
}  # fmt: skip
OTHER_ID = UUID("aaaaaaaa-0000-0000-0000-000000000002")
VERSIONS = {"persistence_version": "1", "saga_type_version": "1"}
#: a call of each procedure that changes what it can change; for a queue's own, of the queue Sales, for a saga's, of the saga EverySaga
CALLS = {
    "queue": {
        "send_message": {"headers": "{}", "body": b"x"},
        "send_messages": {"messages": [OutgoingMessage(b"x")]},
        "receive_messages": {"count": 1},
        "receive_message": {"row_version": "the first"},
        "peek_queue": {"count": 10},
        "watch_queue": {"count": 10, "wake_up_ttl_ms": 1000},
        "browse_messages": {"count": 10},
        "purge_queue": {"count": 10},
        "purge_expired": {"count": 10},
        "delay_message": {"headers": "{}", "delay_ms": 60_000},
        "move_due_messages": {"count": 10},
        "receive_due_messages": {"count": 10},
        "queue_metrics": {},
        "maintain_queue": {},
        "describe_stream": {},
        "read_range": {"above": 0, "upto": 2**62, "headers_contain": "{"},
        "move_to_spool": {"owner": "stream-1", "count": 10},
        "confirm_spool": {"owner": "stream-1"},
        "read_spool": {"above": 0, "upto": 2**62},
        "drop_spool": {"owner": "stream-1", "upto": 2**62},
        "describe_spool": {},
        "send_staged": {"job_key": "job-1", "attempts": ["try-1"]},
    },
    "saga": {
        "load_saga": {"correlation_value": "A", "locked": True, "lock_timeout_ms": 100},
        "insert_saga": {"id": OTHER_ID, "correlation_value": "B", "data": "{}", "metadata": "{}", **VERSIONS},
        "update_saga": {"id": ID, "concurrency": 1, "data": '{"x": 1}', **VERSIONS},
        "complete_saga": {"id": ID, "concurrency": 1},
        "correlate_saga": {"id": ID, "correlation_value": "second"},
        "correlate_sagas": {"count": 10},
        "list_sagas": {"count": 10},
    },
    "database": {
        "register_queue": ENTRY,
        "unregister_queue": {"queue_name": "Billing"},
        "list_queues": {},
        "check_queue": {"queue_name": "Sales"},
        "acquire_queue": {"queue_name": "Sales"},
        "renew_lease": {"queue_name": "Sales", "seconds": 10},
        "send_message": {"queue_name": "Sales", "headers": "{}", "body": b"x"},
        "receive_messages": {"queue_name": "Sales", "count": 1},
        "send_unregistered": {"schema_name": "the default", "table_name": "Sales", "headers": "{}"},
        "record_failure": {"queue_key": "Sales", "id": ID},
        "forget_failure": {"queue_key": "Sales", "id": ID},
        "subscribe": {**SUBSCRIPTION, "queue_address": "Sales"},
        "unsubscribe": SUBSCRIPTION,
        "list_subscriptions": {},
        "publish_message": {"topics": ["Shop.OrderPlaced"], "headers": "{}"},
        "record_decision": {"transaction_id": "tx-1", "participants": "[]"},
        "probe_transaction": {"transaction_id": "tx-1"},
        "forget_decision": {"transaction_id": "tx-1"},
        "list_decisions": {},
        "find_handled": HANDLED,
        "record_handled": HANDLED,
        "store_operations": {**HANDLED, "operations": "[]"},
        "settle_operations": HANDLED,
        "list_undispatched": {"seconds": 0, "count": 10},
        "clean_outbox": {"retention_seconds": 0, "count": 10},
        "outbox_status": {},
        "record_dispatch": HANDLED,
        "forget_dispatch": HANDLED,
        "clean_dispatches": {"retention_seconds": 0, "count": 10},
        "elect": {"duty": "maintenance"},
        "claim_ledger": {"job_key": "job-1", "part": 0, "parts": 2},
        "settle_ledger": {"job_key": "job-1", "part": 0, "messages": 1, "digest": "d"},
        "complete_ledger": {"job_key": "job-1", "parts": 1},
        "stage_messages": {"job_key": "job-1", "attempt": "try-1", "messages": [OutgoingMessage(b"x")]},
        "drop_staged": {"job_key": "job-1"},
        "register_saga": SAGA_ENTRY,
        "unregister_saga": {"saga_key": SAGA.name},
        "list_saga_types": {},
        "record_script": {"script_name": "x.sql", "script_kind": "anytime", "script_hash": "a" * 64},
        "forget_script": {"script_name": "grants.sql"},
        "list_scripts": {},
        "list_unmanaged_objects": {},
        "get_definition": {"object_name": "rowpost.get_version"},
        "record_version": {"schema_version": 9999, "tool_version": "9.9"},
        "get_version": {},
        "record_feature": {"environment": "shop", "feature": "spark"},
        "forget_feature": {"environment": "local", "feature": "spark"},
        "list_features": {},
        "has_rows": {"script_name": "tables/004_queue.sql"},
    },
}
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
    ("database", "send_unregistered", "schema_name"): NO_TABLE,
    ("database", "send_unregistered", "table_name"): NO_TABLE,
    ("queue", "confirm_spool", "owner"): (SpoolTaken, "taken over the spool"),
    ("queue", "drop_spool", "owner"): (SpoolTaken, "belongs to another stream"),
}
NO_JSON, TOO_LONG = (InvalidMessage, "invalid input syntax for type json"), (InvalidMessage, "value too long")
REFUSED = {
    "postgresql": REFUSED_EVERYWHERE
    | {
        ("saga", name, parameter): reason
        for name in ("insert_saga", "update_saga")
        for parameter, reason in (("data", NO_JSON), ("persistence_version", TOO_LONG), ("saga_type_version", TOO_LONG))
    },
    "sqlserver": REFUSED_EVERYWHERE,  # there, a saga's state is a column of text
}
#: what may stand in the tables before, so that a removal has something to remove
BEFORE = (
    "record_failure", "subscribe", "record_decision", "record_handled", "store_operations", "record_dispatch", "claim_ledger",
    "stage_messages",
)  # fmt: skip
PROCEDURES = sorted((procedure.scope, procedure.name) for procedure in load_contract().procedures)


@pytest.fixture(scope="module")
def saga_table(target):
    """The saga's table, deployed."""
    with target.connect() as database:
        apply(database, plan(replace(target.settings, sagas=(SAGA,))))
        entry = describe_saga(SAGA, target.settings.engine)
        return saga_names(entry, database.dialect)["saga_table"]


@pytest.fixture
def call(database, target, queue, sql, saga_table):
    """Calls a procedure with the arguments above, some of them exchanged."""

    def run(scope, name, **exchanged):
        arguments = {**CALLS[scope][name], **exchanged}
        if arguments.get("schema_name") == "the default":
            arguments["schema_name"] = target.settings.default_schema
        if arguments.get("row_version") == "the first":
            arguments["row_version"] = queue.browse()[0].row_version
        return database.call(name, {"queue": "Sales", "saga": SAGA.name}.get(scope), **arguments)

    sql.run(f"DELETE FROM {saga_table}")
    sql.run("DELETE FROM rowpost.spool")
    content = {**CALLS["saga"]["insert_saga"], "id": ID, "correlation_value": "A"}
    database.call("insert_saga", SAGA.name, **content)
    database.call("move_to_spool", "Sales", owner="stream-1", count=10)
    return run


@pytest.fixture
def content(database, target, queue, call, saga_table):
    """Everything that the procedures could change."""
    sales = queue_names(describe_queue(QueueSettings("Sales"), target.settings.engine), database.dialect)
    routing = 'public."SubscriptionRouting"' if target.settings.engine == "postgresql" else "dbo.SubscriptionRouting"
    names = "journal version queue saga failure decision lease outbox outbox_operations dispatch purge"
    names += " spool spooled_message ledger staged_message"
    own = (f"rowpost.{name}" for name in names.split())
    tables = (*own, routing, sales["queue_table"], sales["delayed_table"], saga_table)
    probe = probe_for(database, babelfish=target.babelfish)

    def read():
        return {table: sorted(map(repr, probe.run(f"SELECT * FROM {table}"))) for table in tables}

    queue.send(b"x")
    return read


def test_every_procedure_of_the_contract_is_called_here():
    assert sorted((scope, name) for scope, calls in CALLS.items() for name in calls) == PROCEDURES


@pytest.mark.parametrize(("scope", "name"), PROCEDURES)
def test_a_procedure_leaves_the_callers_session_and_transaction_as_they_were(database, target, queue, call, scope, name):
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

    assert raised is None or type(raised.value) is refused[0]
    assert set(before) <= set(content()["rowpost.queue"])
    database.rollback()


def test_each_refusal_of_text_is_of_a_parameter_that_exists():
    known = {
        (procedure.scope, procedure.name, parameter.name)
        for procedure in load_contract().procedures
        for parameter in procedure.parameters
    }

    assert {engine: refusals.keys() - known for engine, refusals in REFUSED.items()} == {"postgresql": set(), "sqlserver": set()}
