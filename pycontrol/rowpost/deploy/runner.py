"""Run one batch of a script and say, when it fails, on which line of the file.

PostgreSQL tells the position in the statement. pyodbc passes no line on, so that a T-SQL batch runs inside TRY/CATCH,
which returns what the server knows about the error.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from rowpost.database.connection import Connection
from rowpost.deploy.sql_text import SqlBatch, code_line, code_only, tokens
from rowpost.errors import DatabaseUnavailable, LockRefused

__all__ = [
    "SESSION_BATCH",
    "BatchError",
    "BatchRunner",
    "PostgresqlRunner",
    "SqlserverRunner",
    "is_babelfish",
]

# Settings must outlive their batch: such batches are not wrapped.
SESSION_BATCH = re.compile(r"(?:\s*SET\s[^;]*;?)+\s*", re.IGNORECASE)
INLINE_BLOCK = re.compile(r"inline_code_block line (\d+)")
CAUGHT = "rowpost: batch failed"

_FUNCTION = re.compile(r'CREATE OR REPLACE FUNCTION rowpost\.(?:"((?:[^"]|"")+)"|(\w+))\(')
_OTHER_RESULT = "42P13"  # invalid_function_definition: also of a text that is wrong by itself, which then fails again
_OF_NAME = """
SELECT p.oid::pg_catalog.regprocedure::text, ARRAY(
    SELECT DISTINCT r.rolname::text
    FROM pg_catalog.aclexplode(p.proacl) AS a
    INNER JOIN pg_catalog.pg_roles AS r ON r.oid = a.grantee AND r.oid <> p.proowner
    WHERE a.privilege_type = 'EXECUTE'
)
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'rowpost'::pg_catalog.regnamespace AND p.proname = {name}
"""


class BatchError(Exception):
    """The server refused a batch. `line` is that of the file, `problem` what the server said."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line, self.problem = line, problem


class BatchRunner:
    """Sends batches as they are."""

    def __init__(self, database: Connection) -> None:
        self._connection, self._dialect = database.driver_connection, database.dialect

    def run(self, batch: SqlBatch, bare: bool = False) -> None:
        """Run a batch; `bare` leaves out whatever an engine wraps it in.

        Raises BatchError; DatabaseUnavailable when the connection broke, LockRefused when another deployment has the
        lock.
        """
        self._send(batch, batch.text)

    def rollback(self) -> None:
        """End the deployment's transaction, if it still lives."""
        with suppress(self._dialect.driver_error()):
            self._dialect.rollback(self._connection)

    def _send(self, batch: SqlBatch, text: str) -> list[tuple[Any, ...]]:
        try:
            return self._dialect.script(self._connection, text)
        except self._dialect.driver_error() as error:
            said = self._dialect.translate(error)
            if isinstance(said, DatabaseUnavailable | LockRefused):
                raise said from error
            raise BatchError(_line(batch, getattr(error, "diag", None)), str(said)) from error


def _line(batch: SqlBatch, diag: Any) -> int:
    if diag is None:
        return code_line(batch, "sqlserver")
    if diag.statement_position:
        return batch.line + batch.text.count("\n", 0, int(diag.statement_position) - 1)
    inline = INLINE_BLOCK.search(diag.context or "")
    body = next((piece for piece in tokens(batch.text, "postgresql") if piece.kind == "body"), None)
    if inline and body:
        return batch.line + batch.text.count("\n", 0, body.start) + int(inline.group(1)) - 1
    return code_line(batch, "postgresql")


class PostgresqlRunner(BatchRunner):
    """Sends batches as they are, for they are single statements.

    A function with another result than its new text makes way for it.

    CREATE OR REPLACE cannot replace such a function. Who may execute the old one may execute the new one.
    """

    def run(self, batch: SqlBatch, bare: bool = False) -> None:
        made = None if bare else _FUNCTION.match(code_only(batch.text, "postgresql").lstrip())
        if made is None:
            self._send(batch, batch.text)
            return
        self._send(batch, "SAVEPOINT rowpost_function")
        try:
            self._send(batch, batch.text)
        except BatchError as error:
            if getattr(error.__cause__, "sqlstate", None) != _OTHER_RESULT:
                raise
            self._send(batch, "ROLLBACK TO rowpost_function")
            self._replace(batch, made[1].replace('""', '"') if made[1] else made[2])
        self._send(batch, "RELEASE rowpost_function")

    def _replace(self, batch: SqlBatch, name: str) -> None:
        quote, roles = self._dialect.quote, set[str]()
        for signature, may_execute in self._send(batch, _OF_NAME.format(name=self._dialect.literal(name))):
            self._send(batch, f"DROP FUNCTION {signature}")
            roles.update(may_execute)
        self._send(batch, batch.text)
        for role in sorted(roles):
            self._send(batch, f"GRANT EXECUTE ON FUNCTION rowpost.{quote(name)} TO {quote(role)}")


class SqlserverRunner(BatchRunner):
    """Runs batches as sqlcmd does, but for TRY/CATCH around them."""

    def run(self, batch: SqlBatch, bare: bool = False) -> None:
        if bare or SESSION_BATCH.fullmatch(code_only(batch.text)):
            self._send(batch, batch.text)
            return
        rows = self._send(
            batch,
            f"BEGIN TRY EXEC sys.sp_executesql {self._dialect.literal(batch.text)}; END TRY\n"
            f"BEGIN CATCH SELECT N'{CAUGHT}', ERROR_NUMBER(), ERROR_LINE(), ERROR_PROCEDURE(), ERROR_MESSAGE();"
            # A doomed transaction may not outlive its batch: error 3998 would hide the error that doomed it.
            " IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; END CATCH;",
        )
        if rows and rows[0][0] == CAUGHT:
            _, number, line, procedure, message = rows[0]
            # A line of a procedure that the batch called says nothing about the batch.
            where = code_line(batch, "sqlserver") if procedure else batch.line + line - 1
            raise BatchError(where, f"{message} (error {number}{f' in {procedure}' if procedure else ''})")


def is_babelfish(database: Connection) -> bool:
    """Return whether the connection leads to Babelfish for PostgreSQL, which speaks T-SQL and is not supported."""
    if database.engine != "sqlserver":
        return False
    with database.translated():
        rows = database.dialect.script(database.driver_connection, "SELECT CAST(SERVERPROPERTY('babelfish') AS int);")
    return rows == [(1,)]
