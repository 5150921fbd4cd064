"""Run tests in a schema that is not the engine's own: `pytest --schema nsb pycontrol/tests/endpoint pycontrol/tests/sagas pycontrol/tests/interop`.

The databases are deployed there, and each endpoint means it, as if its environment had `default_schema`. Names in tests stay as they are:
what a test says of a queue is said of the queue in that schema.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from rowpost.database.connection import Connection
from rowpost.endpoint.declaration import EndpointDeclaration
from rowpost.pipeline.pipeline import Pipeline
from rowpost.transport import delayed
from rowpost.transport.queue import Queue
from rowpost.wire.address import SUBSCRIPTION_TABLE, Address, Naming
from tests.support.probe import Probe

__all__ = ["current", "install", "install_as_asked", "named"]

_VARIABLE = "ROWPOST_TEST_SCHEMA"
_schema: str | None = None


def current() -> str | None:
    """Return the schema of this run; None without the option."""
    return _schema


def named(name: str) -> str:
    """Return the name of a queue in the schema of this run; as it is without the option."""
    return name if _schema is None or name == SUBSCRIPTION_TABLE else Naming("postgresql", _schema).resolve(name)


def install_as_asked() -> None:
    """Do the same in a program that a test has started."""
    if _VARIABLE in os.environ:
        install(os.environ[_VARIABLE])


def install(schema: str) -> None:
    """Let endpoints, queues and probes of this process mean a schema."""
    global _schema  # noqa: PLW0603 -- an option of the run
    _schema = os.environ[_VARIABLE] = schema  # for programs that tests start
    declare = EndpointDeclaration.__init__

    @wraps(declare)
    def in_schema(self: EndpointDeclaration, *args: Any, **options: Any) -> None:
        declare(self, *args, **options)
        self._take_names(Naming("postgresql", schema), self.options.audit_queue)

    EndpointDeclaration.__init__ = in_schema
    for kind, method, place in (
        (Queue, "__init__", 0),
        (Pipeline, "__init__", 1),
        (Connection, "call", 1),
        (Connection, "call_atomically", 1),
        (Connection, "stream", 1),
    ):
        _name_argument(kind, method, place)
    _name_calls()
    _name_addresses()
    delayed.move_due = _moving(delayed.move_due)
    for method in ("table", "empty", "drop_queue", "drop_column", "column_values", "columns", "insert_minimal"):
        for probe in (Probe, *Probe.__subclasses__()):
            if method in vars(probe):
                _name_argument(probe, method, 0)


def _asks() -> bool:
    """Return whether a test, not rowpost, has called what called this: only what tests say is put into the schema."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(("tests.", "__main__"))


def _name_argument(kind: type, method: str, place: int) -> None:
    """Let the argument at a place, behind self, be a name in the schema."""
    given = getattr(kind, method)

    @wraps(given)
    def in_schema(self: Any, *args: Any, **options: Any) -> Any:
        if _asks():
            args = tuple(
                named(each) if number == place and each is not None else each for number, each in enumerate(args)
            )
        return given(self, *args, **options)

    setattr(kind, method, in_schema)


def _moving(move: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(move)
    def in_schema(database: Connection, queue: str, **options: Any) -> Any:
        return move(database, named(queue) if _asks() else queue, **options)

    return in_schema


def _name_addresses() -> None:
    given = Connection.canonical

    @wraps(given)
    def in_schema(self: Connection, address: Address) -> str:
        return given(self, replace(address, schema=_schema) if address.schema is None and _asks() else address)

    Connection.canonical = in_schema


def _name_calls() -> None:
    given = Connection.call_all

    @wraps(given)
    def in_schema(self: Connection, calls: Any, **options: Any) -> Any:
        if _asks():
            calls = [(procedure, queue and named(queue), arguments) for procedure, queue, arguments in calls]
        return given(self, calls, **options)

    Connection.call_all = in_schema
