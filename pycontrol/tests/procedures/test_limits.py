"""A text that is longer than what stores it is refused or finds nothing. It is never cut to another value.

SQL Server cuts an argument to the declared type of its parameter, without an error. So every parameter of text is declared
longer than its limit, and a procedure that stores it checks its length.
"""

import re
from dataclasses import replace

import pytest

from rowpost.database.contract import Parameter, load_contract
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.errors import CatalogueError, RowpostError
from tests.support.probe import probe_for
from tests.support.procedure_calls import CALLS, SAGA

WORDS = "one of a few words: a CHECK of the table, or its type, refuses any other"
LEGACY = "a column of transport versions 1 to 6, which rowpost does not write: the column refuses it, and sending has no check more"
NOTE = "a note for people, which is shortened on purpose, as its documentation says"
#: how many characters a parameter of this name may have; PostgreSQL's columns have no limit of their own
LIMITS = {
    "after_endpoint": 200, "after_message_id": 200, "attempt": 100, "attempts": 100, "catalog_name": 128,
    "correlation_id": 255, "correlation_name": 128, "correlation_value": 200, "delayed_key": 44, "delayed_keys": 44,
    "destination": 200,
    "digest": 64, "digests": 64, "display_name": 400, "duty": 200, "endpoint": 200, "endpoints": 200,
    "environment": 200, "feature": 200, "job_key": 200, "message_id": 200, "mode": 20, "object_name": 520,
    "otherwise_queue": 400, "owner": 200, "persistence_version": 23, "publisher": 200, "queue_address": 200,
    "queue_key": 128, "queue_name": 400, "reply_to_address": 255, "run": 40, "saga_key": 128, "saga_name": 400,
    "saga_type_version": 23, "schema_name": 128, "script_hash": 64, "script_name": 400, "table_key": 128,
    "table_name": 128, "text": 200, "tool_version": 50, "topic": 200, "topics": 200, "transaction_id": 64,
    "transitional_name": 128,
    "cron": 200, "message_type": 200, "missed": 10, "schedule_name": 150, "zone": 100,
    "correlation_type": 10, "kind": 10, "object_kind": 10, "script_kind": 10, "transitional_type": 10,
}  # fmt: skip
#: lists whose elements are no texts of their own
NO_TEXTS = {"ids": "ids are compared as uuids", "messages": "numbers", "row_versions": "numbers"}
#: by procedure and parameter, why a value that is one character too long does neither
EXCEPTIONS = {
    ("send_message", "correlation_id"): LEGACY,
    ("send_message", "reply_to_address"): LEGACY,
    ("register_queue", "kind"): WORDS,
    ("record_script", "script_kind"): WORDS,
    ("record_script", "object_kind"): WORDS,
    ("control_queue", "reason"): NOTE,
    ("control_schedule", "reason"): NOTE,
    ("begin_job", "started_by"): NOTE,
    **{("report_supervisor", name): NOTE for name in ("host_name", "environment", "rowpost_version")},
    **{
        ("record_operation", name): NOTE
        for name in ("operation_name", "client", "user_name", "message_id", "reason", "outcome")
    },
    **{("report_operation", name): NOTE for name in ("operation_state", "outcome")},
    ("cancel_operation", "user_name"): NOTE,
}
DECLARED = re.compile(r"^\s+@(\w+) (\w+)(?:\((\w+)\))?", re.MULTILINE)
TEXTS = [
    (procedure, parameter)
    for procedure in load_contract().procedures
    for parameter in procedure.parameters
    if parameter.type in ("string", "strings")
    if parameter.name not in NO_TEXTS and EXCEPTIONS.get((procedure.name, parameter.name)) != NOTE
]


def test_every_text_has_a_limit_and_is_declared_longer_in_t_sql():
    wrong = [
        f"{procedure.name} @{parameter.name} {declared}"
        for procedure, parameter in TEXTS
        for declared in [_declared(procedure.folder, procedure.name)[parameter.name]]
        if declared != "max" and int(declared) <= LIMITS[parameter.name]
    ]
    bounded = [
        f"{procedure.name} @{parameter.name}"
        for procedure in load_contract().procedures
        for parameter in procedure.parameters
        if parameter.type == "text" and _declared(procedure.folder, procedure.name)[parameter.name] != "max"
    ]

    assert wrong == bounded == []


def _declared(folder: str, name: str) -> dict[str, str]:
    """Return the length of each parameter of text of a procedure in T-SQL: a number, or max."""
    head = (sql_folder() / "procedures" / folder / f"{name}.sql").read_text(encoding="utf-8").partition("\n/*\n")[0]
    return {name: "128" if kind == "sysname" else length or "1" for name, kind, length in DECLARED.findall(head)}


def test_each_exception_is_a_parameter_that_exists():
    known = {(procedure.name, each.name) for procedure in load_contract().procedures for each in procedure.parameters}

    assert EXCEPTIONS.keys() - known == set()


@pytest.fixture
def prepared(database, target, queue, sql):
    """A message, a saga's table, a job, a spool, and what else the procedures find. Returns a reader of all tables."""
    with target.connect() as deployer:
        apply(deployer, plan(replace(target.settings, sagas=(SAGA,))))
    queue.send(b"x")
    probe = probe_for(database, babelfish=target.babelfish)
    names = "version queue saga failure decision queue_ownership outbox outbox_operations dispatch spool ledger staged_message job"
    names += " schedule job_part queue_control operation_log declared_feature subscription_table taken_subscription"

    def content() -> dict[str, list[str]]:
        return {name: sorted(map(repr, probe.run(f"SELECT * FROM rowpost.{name}"))) for name in names.split()}

    return content


def test_a_text_that_is_one_character_too_long_is_refused_or_finds_nothing(database, target, prepared):
    wrong = []
    for procedure, parameter in TEXTS:
        if parameter not in procedure.parameters_on(database.engine):
            continue
        database.begin()
        before = prepared()
        try:
            _call(database, target, procedure.scope, procedure.name, parameter)
        except CatalogueError:
            pass
        except RowpostError as error:
            if (procedure.name, parameter.name) not in EXCEPTIONS:
                wrong.append(f"{procedure.name} {parameter.name}: {type(error).__name__}: {error}")
        else:
            changed = [name for name, rows in prepared().items() if rows != before[name]]
            if changed:
                wrong.append(f"{procedure.name} {parameter.name}: changed {changed}")
        database.rollback()

    assert wrong == []


def _call(database, target, scope: str, name: str, parameter: Parameter) -> None:
    long = "x" * (LIMITS[parameter.name] + 1)
    arguments = {**CALLS[scope][name], parameter.name: [long] if parameter.type == "strings" else long}
    if arguments.get("row_version") == "the first" and parameter.name != "row_version":
        arguments["row_version"] = 1
    if arguments.get("schema_name") == "the default":
        arguments["schema_name"] = target.settings.default_schema
    database.call(name, {"queue": "Sales", "saga": SAGA.name}.get(scope), **arguments)
