"""Babelfish for PostgreSQL, a T-SQL engine to test on: the adaptations that it needs, all in this file.

It knows no CREATE OR ALTER and accepts SET NOEXEC without obeying it. Where a procedure needs more than that, a file
below sql/babelfish/ with the same path stands in for the T-SQL that SQL Server runs.
"""

from __future__ import annotations

import re
from pathlib import Path

from rowpost.database.connection import Connection
from rowpost.deploy.runner import SqlserverRunner, code_only
from rowpost.deploy.sql_text import Batch

__all__ = ["BabelfishRunner", "is_babelfish", "substitute"]

_NAME = r"(?:\[(?:[^\]]|\]\])*\]|\w+)"
CREATE_OR_ALTER = re.compile(
    rf"\bCREATE(\s+OR\s+ALTER)\s+(PROCEDURE|FUNCTION)\s+({_NAME}(?:\.{_NAME})?)", re.IGNORECASE
)
NOEXEC = re.compile(r"(?:\s*IF\b(?P<condition>.*?)\s)?\s*SET\s+NOEXEC\s+(?P<state>ON|OFF)\s*;?\s*", re.I | re.S)


def is_babelfish(database: Connection) -> bool:
    """Whether the connection leads to Babelfish."""
    if database.engine != "sqlserver":
        return False
    with database.translated():
        return database.dialect.script(database.driver_connection, "SELECT CAST(SERVERPROPERTY('babelfish') AS int);") == [
            (1,)
        ]


def substitute(sql_folder: Path, script_name: str) -> str | None:
    """The text of the file that stands in for a script here, None when the script itself will do."""
    path = sql_folder / "babelfish" / script_name
    return path.read_text(encoding="utf-8-sig").replace("\r\n", "\n") if path.is_file() else None


class BabelfishRunner(SqlserverRunner):
    """Runs batches as SQL Server would understand them."""

    def __init__(self, database: Connection) -> None:
        super().__init__(database)
        self._skipping = False

    def run(self, batch: Batch, bare: bool = False) -> None:
        guard = NOEXEC.fullmatch(code_only(batch.text))
        if guard:
            condition = guard["condition"] if guard["state"].upper() == "ON" else "1 = 0"
            self._skipping = self._holds(condition or "1 = 1")
        elif not self._skipping:
            super().run(self._without_or_alter(batch), bare)

    def rollback(self) -> None:
        self._skipping = False
        super().rollback()

    def _holds(self, condition: str) -> bool:
        return self._send(Batch(0, 0, condition), f"IF {condition} SELECT 1 ELSE SELECT 0;") == [(1,)]

    def _without_or_alter(self, batch: Batch) -> Batch:
        found = CREATE_OR_ALTER.search(batch.text)
        if found is None:
            return batch
        drop = f"DROP {found[2]} IF EXISTS {found[3]};"
        super().run(Batch(batch.number, batch.line, drop))
        start, end = found.span(1)
        return Batch(batch.number, batch.line, batch.text[:start] + " " * (end - start) + batch.text[end:])
