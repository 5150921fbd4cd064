"""Who uses the dashboard, as the operator of operations: each operation is a line in the dashboard's log too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import RowpostError
from rowpost.operations.log import Noted, Operator

__all__ = ["CLIENT", "VisitingOperator", "log_operation"]

#: how the operation log names the dashboard
CLIENT = "dashboard"
_log = logging.getLogger("rowpost.dashboard.operations")


class VisitingOperator(Operator):
    """A user of the dashboard. The attribute `operation` of a record in the log is the same as a mapping."""

    @contextmanager
    def operation(
        self, database: Connection, name: str, queue: str | None, *, reason: str | None = None, **details: Any
    ) -> Iterator[Noted]:
        """Execute the block, record it, and log it at its end. Raises as `Operator.operation`."""
        said = {} if reason is None else {"reason": reason}
        with self.line(name, queue=queue, **said, **details) as line:
            with super().operation(database, name, queue, reason=reason, **details) as noted:
                yield noted
            line.update(noted.details, **({"message_id": noted.message_id} if noted.message_id else {}))

    @contextmanager
    def line(self, name: str, **details: Any) -> Iterator[dict[str, Any]]:
        """Run an operation and log it at its end. The block may add to the mapping."""
        line: dict[str, Any] = dict(details)
        try:
            yield line
        except RowpostError as error:
            self._write(name, {**line, "outcome": "refused", "error": str(error)}, logging.WARNING)
            raise
        except BaseException:
            self._write(name, {**line, "outcome": "failed"}, logging.ERROR)
            raise
        self._write(name, {**line, "outcome": "done"}, logging.INFO)

    def _write(self, name: str, line: dict[str, Any], level: int) -> None:
        shown = ", ".join(f"{key} {value!r}" for key, value in line.items() if key != "outcome")
        log_operation(level, name, self.user, line, f"{line['outcome']}: {shown}")


def log_operation(level: int, name: str, user: str | None, line: dict[str, Any], text: str) -> None:
    """Write a line of the dashboard's log about an operation."""
    extra = {"operation": {"event": "Operation", "operation": name, "user": user, **line}}
    _log.log(level, "%s by %r %s", name, user, text, extra=extra)
