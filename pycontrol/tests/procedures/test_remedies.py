"""Each remedy that `check_queue` prints is carried out as it is printed, and the check is clean afterwards."""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rowpost.database.contract import load_contract
from rowpost.database.sql_folder import sql_folder
from rowpost.deploy.entries import describe_queue
from rowpost.deploy.queues import drop_queue
from rowpost.settings.environment import QueueSettings
from rowpost.transport.maintenance import maintain_queue

TESTS = Path(__file__).parents[1]
DEADLINE = 30.0
#: findings whose remedies another test carries out, and where it is
ELSEWHERE = {
    "postgresql": {
        "owner_differs": (TESTS / "procedures/test_rights.py", "the_remedy_mends_it"),
        "transaction_open": (
            TESTS / "deploy/test_verify.py",
            "session_that_keeps_dead_rows_is_named_with_what_ends_it",
        ),
    },
    "sqlserver": {
        "owner_differs": (TESTS / "procedures/test_rights.py", "the_remedy_mends_it"),
    },
}


@dataclass(frozen=True)
class Damage:
    """Statements that break a queue, and the finding that they cause."""

    finding: str
    statements: tuple[str, ...]
    options: dict = field(default_factory=dict)
    not_on_babelfish: str = ""
    #: with which options the queue is deployed again after the damage
    then: dict | None = None


def damage(finding: str, *statements: str, **more: object) -> Damage:
    return Damage(finding, statements, **more)


DEAD = (
    "ALTER TABLE {table} SET (autovacuum_enabled = off)",
    "INSERT INTO {table} (id, headers, body)"
    " SELECT gen_random_uuid(), repeat('h', 300), convert_to(repeat('b', 500), 'UTF8') FROM generate_series(1, {rows})",
    "DELETE FROM {table}",
)
OWNERSHIP = "UPDATE rowpost.queue_ownership SET ends_at = '2024-01-01' WHERE queue_key = '{key}'"
NO_INDEX = "disables no index"
NO_DEFAULT = "names a default otherwise than its catalog says"
NOT_NULL = "changes no column to NOT NULL"
DAMAGES = {
    "postgresql": (
        damage("table_missing", "DROP TABLE {table}"),
        *(damage("column_missing", f"ALTER TABLE {{table}} DROP COLUMN {name}") for name in ("id", "expires", "headers", "body", "seq")),
        damage("column_mandatory", "ALTER TABLE {table} ADD COLUMN tenant text NOT NULL"),
        damage("column_mandatory", "ALTER TABLE {table} ALTER COLUMN seq DROP IDENTITY"),
        damage("column_shrunk", "ALTER TABLE {table} ALTER COLUMN headers TYPE varchar(100)"),
        damage("column_shrunk", "ALTER TABLE {table} ALTER COLUMN body TYPE text USING ''"),
        damage("expires_index_missing", "DROP INDEX {expires}"),
        damage("row_version_index_missing", "ALTER TABLE {table} DROP CONSTRAINT {row_version}"),
        damage("row_version_32_bit", "ALTER TABLE {table} ALTER COLUMN seq TYPE integer"),
        damage("orphaned", OWNERSHIP),
        damage("settings_missing", "ALTER TABLE {table} RESET (vacuum_truncate)"),
        damage("waiters_missing", 'DROP SEQUENCE rowpost."waiters:{key}"'),
        damage("waiters_unlogged", 'ALTER SEQUENCE rowpost."waiters:{key}" SET UNLOGGED'),
        damage("index_invalid", "CREATE INDEX left_behind ON {table} (id)",
               "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'left_behind'::regclass"),
        damage("dead_rows", *(each.replace("{rows}", "10000") for each in DEAD)),
        damage("bloated", *(each.replace("{rows}", "40000") for each in DEAD)),
        damage("procedure_missing", 'DROP FUNCTION rowpost."peek_queue:{key}"'),
    ),
    "sqlserver": (
        damage("table_missing", "DROP TABLE {table}"),
        *(damage("column_missing", f"ALTER TABLE {{table}} DROP COLUMN {name}") for name in ("Id", "Headers", "Body")),
        *(damage("column_missing", f"DROP INDEX Index_{name} ON {{table}}", f"ALTER TABLE {{table}} DROP COLUMN {name}")
          for name in ("Expires", "RowVersion")),
        damage("column_mandatory", *(f"ALTER TABLE {{table}} ADD {column} NOT NULL" for column in (
            "tenant nvarchar(20)", "a varbinary(8)", "b decimal(10, 2)", "c datetime2(3)", "d char(3)", "e nvarchar(max)")),
               not_on_babelfish="changes no column to NULL"),
        damage("headers_varchar", "ALTER TABLE {table} ALTER COLUMN Headers varchar(max) NOT NULL", not_on_babelfish=NOT_NULL),
        damage("column_shrunk", "ALTER TABLE {table} ALTER COLUMN Headers nvarchar(4000) NOT NULL",
               "ALTER TABLE {table} ALTER COLUMN Body varbinary(100) NULL", not_on_babelfish=NOT_NULL),
        damage("expires_index_missing", "DROP INDEX Index_Expires ON {table}"),
        damage("row_version_index_missing", "DROP INDEX Index_RowVersion ON {table}", options={"clustered": False}),
        damage("row_version_index_clustered", then={"clustered": False}, not_on_babelfish="has no clustered indexes"),
        damage("row_version_index_clustered", "DROP INDEX Index_RowVersion ON {table}",
               "ALTER TABLE {table} ADD CONSTRAINT {key}_pk PRIMARY KEY CLUSTERED (RowVersion)", options={"clustered": False},
               not_on_babelfish="has no clustered indexes"),
        damage("index_disabled", "ALTER INDEX Index_RowVersion ON {table} DISABLE", options={"clustered": False}, not_on_babelfish=NO_INDEX),
        damage("index_disabled", "ALTER INDEX Index_Expires ON {table} DISABLE", not_on_babelfish=NO_INDEX),
        damage("lock_escalation", "ALTER TABLE {table} SET (LOCK_ESCALATION = TABLE)", not_on_babelfish="has no LOCK_ESCALATION in its catalog"),
        damage("recoverable_missing", "{drop_default}", "ALTER TABLE {table} DROP COLUMN Recoverable", then={}, not_on_babelfish=NO_DEFAULT),
        damage("recoverable_changed", "{drop_default}", not_on_babelfish=NO_DEFAULT),
        damage("recoverable_changed", "{drop_default}", "ALTER TABLE {table} DROP COLUMN Recoverable", not_on_babelfish=NO_DEFAULT),
        damage("trigger_enabled", "CREATE TRIGGER {key}_trigger ON {table} AFTER INSERT AS RETURN"),
        damage("orphaned", OWNERSHIP),
        damage("bloated", "INSERT INTO {table} (Id, Headers) SELECT TOP (1500) NEWID(), REPLICATE(N'h', 3500)"
               " FROM sys.all_columns AS a CROSS JOIN sys.all_columns AS b", "DELETE q FROM {table} AS q WITH (ROWLOCK)",
               options={"clustered": False}, not_on_babelfish="has no figures of tables in its catalog"),
        damage("procedure_missing", "DROP PROCEDURE rowpost.[peek_queue:{key}]"),
    ),
}  # fmt: skip
DROP_DEFAULT = (
    "DECLARE @drop nvarchar(max) = (SELECT CONCAT('ALTER TABLE {table} DROP CONSTRAINT ', QUOTENAME(d.name)) FROM sys.default_constraints AS d"
    " WHERE d.parent_object_id = OBJECT_ID('{table}') AND COL_NAME(d.parent_object_id, d.parent_column_id) = 'Recoverable'); EXEC (@drop);"
)
INDEX = (
    "SELECT i.indexrelid::regclass::text FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
    " WHERE i.indrelid = '{table}'::regclass AND a.attname = '{column}'"
)


def findings_in(engine):
    """Return the findings that the text of check_queue has."""
    folder = sql_folder() if engine == "sqlserver" else sql_folder() / "postgresql"
    text = (folder / "procedures/registry/check_queue.sql").read_text(encoding="utf-8")
    return set(re.findall(r"^\s*SELECT\s+\w+\.queue_name,\s+N?'(\w+)'", text, re.MULTILINE))


@pytest.mark.parametrize("engine", ["postgresql", "sqlserver"])
def test_the_remedy_of_each_finding_in_the_text_of_check_queue_is_tried(engine):
    findings = findings_in(engine)

    assert len(findings) > 10
    assert findings == {each.finding for each in DAMAGES[engine]} | ELSEWHERE[engine].keys()
    assert all(words in file.read_text(encoding="utf-8") for file, words in ELSEWHERE[engine].values())


def test_the_contract_names_each_finding():
    column = next(each for each in load_contract().find("check_queue", "database").result if each.name == "finding")

    assert set(column.doc.split(", ")) == findings_in("postgresql") | findings_in("sqlserver")


@pytest.fixture
def carry_out(target, database, sql):
    """Carries out a remedy as it is printed: a statement, or the function behind the command."""

    def run(remedy, name, options):
        if remedy == "rowpost apply":
            target.deploy(QueueSettings(name, **options))
        elif remedy == f"rowpost queue maintain {name}":
            if any(step.state != "done" for step in maintain_queue(database, name)):
                assert database.engine == "sqlserver", "a step was not done"
                pytest.skip("this edition of SQL Server rebuilds no index online")
        elif remedy == f"rowpost queue drop {name}":
            drop_queue(database, name)
            target.deploy(QueueSettings(name, **options))  # a queue of that name can be made again
        else:
            assert not remedy.startswith("rowpost"), f"not a command that is known: {remedy}"
            sql.run(remedy)

    return run


@pytest.mark.promise("queue-check-findings")
@pytest.mark.parametrize(
    ("engine", "case"),
    [
        pytest.param(engine, case, id=f"{engine}-{number}-{case.finding}")
        for engine, cases in DAMAGES.items()
        for number, case in enumerate(cases)
    ],
)
def test_the_remedies_that_are_printed_leave_no_finding(
    make_queue, target, database, sql, carry_out, not_on_babelfish, engine, case
):
    if database.engine != engine:
        pytest.skip(f"a case of {engine}")
    if case.not_on_babelfish:
        not_on_babelfish(case.not_on_babelfish)
    queue, options = make_queue(**case.options), case.options
    database.call("renew_ownership", queue_name=queue.name, seconds=600)
    break_it(sql, queue, case)
    if case.then is not None:
        options = case.then
        target.deploy(QueueSettings(queue.name, **options))

    found = wait_for(database, queue, lambda findings: case.finding in {each.finding for each in findings})
    for each in found:
        carry_out(each.remedy, queue.name, options)

    wait_for(database, queue, lambda findings: findings == [])
    queue.send(b"after")
    assert b"after" in [message.body for message in queue.receive(10)]
    assert "not null" in {name.lower(): form for name, form in sql.columns(queue.name).items()}["headers"]


def break_it(sql, queue, case):
    """Run the statements of a case."""
    names = {
        "table": sql.table(queue.name),
        "key": describe_queue(QueueSettings(queue.name), sql.database.engine).key,
        "expires": "",
        "row_version": "",
        "drop_default": "",
    }
    if sql.database.engine == "postgresql":
        found = {
            column: sql.value(INDEX.format(table=names["table"], column=column)).rpartition(".")[2]
            for column in ("expires", "seq")
        }
        names |= {"expires": found["expires"], "row_version": found["seq"]}
    else:
        names["drop_default"] = DROP_DEFAULT.format(table=names["table"])
    for statement in case.statements:
        sql.run(statement.format(**names))


def wait_for(database, queue, holds):
    """Return the findings as soon as the condition holds; the server's statistics may be a second late."""
    end = time.monotonic() + DEADLINE
    while not holds(found := database.call("check_queue", queue_name=queue.name)):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found
