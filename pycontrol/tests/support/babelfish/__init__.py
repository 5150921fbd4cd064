"""Run rowpost's T-SQL on Babelfish for PostgreSQL, an engine for tests only.

`install()` replaces the deployment's `adapted`, which refuses Babelfish otherwise. `adapt` is a function from script to
script: a file below procedures/ with the same path replaces a script, and `SUBSTITUTIONS` change some lines of others.
What is replaced or changed was not executed as SQL Server gets it: `adapted_procedures` lists those procedures for
docs/engines.md.

Babelfish has no CURRENT_TRANSACTION_ID. server.sql makes one: run it once in each cluster, with psql in Babelfish's database.

`HandRunner` runs a script that a person would run with sqlcmd: Babelfish accepts SET NOEXEC without obeying it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from rowpost.database.connection import Connection
from rowpost.deploy import apply, deployment, verify
from rowpost.deploy.plan import Plan, build_plan
from rowpost.deploy.runner import SqlserverRunner, is_babelfish
from rowpost.deploy.scripts import Script, ScriptSet, Templates, load_scripts
from rowpost.deploy.sql_text import SqlBatch, code_only
from tests.support.babelfish.fragments import FRAGMENTS

__all__ = [
    "STAND_INS",
    "SUBSTITUTIONS",
    "HandRunner",
    "adapt",
    "adapted_by_rowpost",
    "adapted_procedures",
    "install",
    "is_babelfish",
]

STAND_INS = Path(__file__).parent
adapted_by_rowpost = deployment.adapted
#: the columns that identify a row, of tables that a DELETE FROM a CTE empties
KEYS = {
    "rowpost.operation_log": ("operation_id",),
    "rowpost.outbox": ("endpoint", "message_id"),
    "rowpost.dispatch": ("endpoint", "message_id"),
}
ROW_VERSION = ("RowVersion",)

_NAME = r"(?:\[(?:[^\]]|\]\])*\]|\w+)"
CREATE_OR_ALTER = re.compile(rf"^CREATE OR ALTER (PROCEDURE|FUNCTION) ({_NAME}(?:\.{_NAME})?)", re.MULTILINE)
NOEXEC = re.compile(r"(?:\s*IF\b(?P<condition>.*?)\s)?\s*SET\s+NOEXEC\s+(?P<state>ON|OFF)\s*;?\s*", re.I | re.S)
LOCK = re.compile(r"^( *)EXEC @(\w+) = sys\.sp_getapplock [^;]*@LockTimeout = 0;$", re.MULTILINE)
REFUSED = """
{0}IF @{1} < 0
{0}BEGIN
{0}    SET XACT_ABORT OFF;
{0}    BEGIN TRY
{0}        THROW 50000, N'refused', 1;
{0}    END TRY
{0}    BEGIN CATCH
{0}        SET @{1} = -1;
{0}    END CATCH;
{0}    SET XACT_ABORT ON;
{0}END;"""
DELETE_FROM_CTE = re.compile(
    r"^WITH (?P<cte>\w+) AS \(\n    SELECT TOP \(@count\) [^\n]*\n    FROM (?P<table>\S+) AS (?P<alias>\w)[^\n]*\n"
    r"(?P<rest>    WHERE.*?)\n\)\nDELETE FROM (?P=cte)\n(?P<output>OUTPUT [^\n]*\n)?OPTION \(MAXDOP 1\);$",
    re.MULTILINE | re.DOTALL,
)
HEADERS = "CAST(pg_catalog.json_object_field_text(CAST(j.[value] AS json), N'headers') AS nvarchar(max))"
DEPTH = re.compile(r"    \(\n        SELECT SUM\(p\.rows\)\n.*?\n    \) AS depth\n", re.DOTALL)
BLOAT = re.compile(r"    DECLARE @pages bigint;.*?    END;\n", re.DOTALL)
STATUS = re.compile(
    r"    SUM\(CASE WHEN s\.index_id = 1.*?AS oldest_record_at,\n(?P<between>.*?)    SUM\(s\.reserved_page_count\) \* 8192 AS total_bytes,\n"
    r"    @foreign AS foreign_undispatched\nFROM sys\.dm_db_partition_stats AS s\nWHERE [^\n]*;",
    re.DOTALL,
)
VIEW_DEFINITION = re.compile(
    r"^GRANT VIEW DEFINITION ON SCHEMA[^;]*;\n|^GRANT [^;]*TO rowpost_internal;[^\n]*\n"
    r"|^IF OBJECT_ID\([^\n]*\n    EXEC \(N'GRANT [^\n]*\n",
    re.MULTILINE,
)


def _delete_by_key(found: re.Match[str]) -> str:
    """DELETE with the rows to delete in a subquery; READPAST is left out, because Babelfish ignores it."""
    table, alias, rest = found["table"], found["alias"], found["rest"]
    keys = KEYS.get(table, ROW_VERSION)
    chosen = ", ".join(f"{alias}.{key}" for key in keys)
    same = " AND ".join(f"gone.{key} = chosen.{key}" for key in keys)
    rows = f"    SELECT TOP (@count) {chosen}\n    FROM {table} AS {alias}\n{rest}\n"
    if len(keys) == 1:
        return f"DELETE gone\n{found['output'] or ''}FROM {table} AS gone\nWHERE gone.{keys[0]} IN\n(\n{rows});"
    return f"DELETE gone\nFROM {table} AS gone\nINNER JOIN\n(\n{rows}) AS chosen ON {same};"


def _openjson(text: str) -> str:
    if "FROM OPENJSON(@messages) WITH\n" not in text:
        return text
    text = text.replace("m.headers", HEADERS).replace("    headers nvarchar(max),\n", "")
    return text.replace(
        "FROM OPENJSON(@messages) WITH\n", "FROM OPENJSON(@messages) AS j\nCROSS APPLY OPENJSON(j.[value]) WITH\n"
    )


def _outbox_figures(text: str) -> str:
    if not STATUS.search(text):
        return text
    text = text.replace("    CASE WHEN @oldest", "    CAST(CASE WHEN @oldest")
    text = text.replace("END AS oldest_undispatched_ms", "END AS bigint) AS oldest_undispatched_ms")
    return STATUS.sub(
        r"    COUNT_BIG(*) AS records,\n    MIN(o.handled_at) AS oldest_record_at,\n\g<between>    CAST(NULL AS bigint) AS total_bytes,\n"
        "    @foreign AS foreign_undispatched\nFROM rowpost.outbox AS o;",
        text,
    )


OWNER = "ON s.name = N'rowpost' AND OBJECTPROPERTY(q.table_id, N'OwnerId') <> s.principal_id"
NO_LOGIN = re.compile(
    r"^(?:WITH EXECUTE AS 'rowpost_internal'|IF DATABASE_PRINCIPAL_ID\(N'rowpost_internal'\) [^\n]*)\n", re.MULTILINE
)
OWNER_BY_DBO = OWNER.replace("N'rowpost'", "N'dbo'")


def _replace(statement: str, other: str, text: str) -> str:
    return text.replace(statement, other)


#: what Babelfish lacks, and the change to a script's text that does without it
SUBSTITUTIONS: dict[str, Callable[[str], str]] = {
    "a refused lock leaves a frame on the server's error stack, and the fifth ends the server; a caught error clears it":
        lambda text: LOCK.sub(lambda found: found[0] + REFUSED.format(found[1], found[2]), text),
    "DELETE FROM a common table expression": lambda text: DELETE_FROM_CTE.sub(_delete_by_key, text),
    "deleted.… inside of CASE or CAST, in OUTPUT": lambda text: (
        text.replace("CASE WHEN deleted.Expires", "CASE WHEN q.Expires").replace("CAST(deleted.Due", "CAST(d.Due")
    ),
    "text of more than 4,000 characters, and escapes, in OPENJSON": _openjson,
    "the role db_owner owns the schema dbo, so that no two schemas have the owner dbo": lambda text: text.replace(OWNER, OWNER_BY_DBO),
    "row counts in sys.partitions": lambda text: BLOAT.sub(
        "    RETURN NULL;\n", DEPTH.sub("    CAST(NULL AS bigint) AS depth\n", text)
    ),
    "LOCK_ESCALATION: it is accepted, and the catalog always says 0": partial(
        _replace, "AND t.lock_escalation <> 1", "AND t.lock_escalation > 1"
    ),
    "IGNORE_DUP_KEY": lambda text: text.replace(" WITH (IGNORE_DUP_KEY = ON)", ""),
    "EXECUTE AS, and users without a login": lambda text: NO_LOGIN.sub("", text),
    "sizes in sys.dm_db_partition_stats": _outbox_figures,
    **{lack: partial(_replace, statement, other) for lack, statement, other in FRAGMENTS},
}  # fmt: skip

#: Babelfish chains no ownership: who calls a procedure needs rights on what the procedure touches
RIGHTS = {
    "grants.sql": "rights.sql",
    "tables/queue/grants.sql": "queue_rights.sql",
    "tables/saga/grants.sql": "saga_rights.sql",
}


def adapt(script: Script) -> Script:
    """The script as Babelfish can run it; the same text for a script that it runs as it is."""
    text = _adapted_text(script)
    if script.name in RIGHTS:
        text = VIEW_DEFINITION.sub("", text) + (STAND_INS / RIGHTS[script.name]).read_text(encoding="utf-8")
    return Script(script.name, CREATE_OR_ALTER.sub(r"DROP \1 IF EXISTS \2;\nGO\nCREATE \1 \2", text))


def _adapted_text(script: Script) -> str:
    stand_in = STAND_INS / script.name
    if stand_in.is_file():
        return LOCK.sub(
            lambda found: found[0] + REFUSED.format(found[1], found[2]), stand_in.read_text(encoding="utf-8")
        )
    text = script.text
    for change in SUBSTITUTIONS.values():
        text = change(text)
    return text


@cache
def adapted_procedures() -> dict[str, str]:
    """Return each procedure that Babelfish does not run as SQL Server gets it, and what Babelfish lacks for it."""
    scripts = load_scripts("sqlserver")
    found = {}
    for script in (*scripts.database, *scripts.queue.procedures, *scripts.saga.procedures):
        if (STAND_INS / script.name).is_file():
            found[script.name] = _limit(script.name)
        else:
            changes = [lack for lack, change in SUBSTITUTIONS.items() if change(script.text) != script.text]
            if changes:
                found[script.name] = "; ".join(changes)
    return found


def _limit(name: str) -> str:
    """What the header of a stand-in names; the whole procedure is replaced."""
    found = re.search(
        r"^Babelfish: (.*?)(?=\n\*/|\n[A-Z]\w+: )",
        (STAND_INS / name).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return f"replaced as a whole: {' '.join(found[1].split()) if found else ''}"


def install() -> None:
    """Let the deployment run on Babelfish, in this process."""
    for module in (apply, deployment, verify):
        module.adapted = adapted


def adapted(database: Connection, plan: Plan) -> Plan:
    """Return the plan as the server can run it: on Babelfish with other scripts, elsewhere as rowpost itself does."""
    if database.engine != plan.engine or not is_babelfish(database):
        return adapted_by_rowpost(database, plan)
    return replace(
        build_plan(plan.environment, _adapted_scripts(plan.scripts), plan.entries, plan.whole, plan.features),
        uncertain=plan.uncertain,
        database=plan.database,
    )


def _adapted_scripts(scripts: ScriptSet) -> ScriptSet:
    def each(value: Any) -> Any:
        if isinstance(value, Script):
            return adapt(value)
        if isinstance(value, tuple):
            return tuple(map(each, value))
        return (
            Templates(**{part.name: each(getattr(value, part.name)) for part in fields(value)})
            if isinstance(value, Templates)
            else value
        )

    return replace(scripts, **{part.name: each(getattr(scripts, part.name)) for part in fields(scripts)})


class HandRunner(SqlserverRunner):
    """Runs batches as sqlcmd would on SQL Server."""

    def __init__(self, database: Connection) -> None:
        super().__init__(database)
        self._skipping = False

    def run(self, batch: SqlBatch, bare: bool = False) -> None:
        guard = NOEXEC.fullmatch(code_only(batch.text))
        if guard:
            condition = guard["condition"] if guard["state"].upper() == "ON" else "1 = 0"
            self._skipping = self._holds(condition or "1 = 1")
        elif not self._skipping:
            found = CREATE_OR_ALTER.search(batch.text)
            if found:
                super().run(SqlBatch(batch.number, batch.line, f"DROP {found[1]} IF EXISTS {found[2]};"))
            super().run(SqlBatch(batch.number, batch.line, CREATE_OR_ALTER.sub(r"CREATE \1 \2", batch.text)), bare)

    def rollback(self) -> None:
        self._skipping = False
        super().rollback()

    def _holds(self, condition: str) -> bool:
        return self._send(SqlBatch(0, 0, condition), f"IF {condition} SELECT 1 ELSE SELECT 0;") == [(1,)]
