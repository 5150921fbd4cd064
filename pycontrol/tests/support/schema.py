"""Run tests in a schema that is not the engine's own: `pytest --schema nsb pycontrol/tests/endpoint pycontrol/tests/sagas pycontrol/tests/interop`.

The databases are deployed there, and each endpoint means it, as if its environment had `default_schema`. Names in tests stay as they are:
what a test says of a queue is said of the queue in that schema.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rowpost.database.connection import Connection
from rowpost.endpoint.declaration import Declaration
from rowpost.pipeline.pipeline import Pipeline
from rowpost.transport.queue import Queue
from rowpost.wire.address import SUBSCRIPTION_TABLE, Naming
from tests.support.probe import Probe

__all__ = ["install", "named"]

_schema: str | None = None


def named(name: str) -> str:
    """Return the name of a queue in the schema of this run; as it is without the option."""
    return name if _schema is None or name == SUBSCRIPTION_TABLE else Naming("postgresql", _schema).resolve(name)


def install(schema: str) -> None:
    """Let endpoints, queues and probes of this process mean a schema."""
    global _schema  # noqa: PLW0603 -- an option of the run
    _schema = schema
    declare = Declaration.__init__

    @wraps(declare)
    def in_schema(self: Declaration, *args: Any, **options: Any) -> None:
        declare(self, *args, **options)
        self._take_names(Naming("postgresql", schema))

    Declaration.__init__ = in_schema
    Queue.__init__ = _naming(Queue.__init__)
    begin = Pipeline.__init__

    @wraps(begin)
    def of_queue(self: Pipeline, database: Connection, queue: str, *args: Any, **options: Any) -> None:
        begin(self, database, named(queue), *args, **options)

    Pipeline.__init__ = of_queue
    for method in ("table", "empty", "drop_queue", "drop_column", "column_values", "columns", "insert_minimal"):
        for kind in (Probe, *Probe.__subclasses__()):
            if method in vars(kind):
                setattr(kind, method, _naming(getattr(kind, method)))


def _naming(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def of_queue(self: Any, name: str, *args: Any, **options: Any) -> Any:
        return method(self, named(name), *args, **options)

    return of_queue
