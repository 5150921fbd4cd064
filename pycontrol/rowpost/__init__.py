"""rowpost: a message queue and service bus that lives in the database.

The names that programs need are importable from here. Each is imported from its module when it is first used. Therefore
`import rowpost` loads neither a driver nor an endpoint, and type checkers still know every name.

    from rowpost import Endpoint, Queue, connect, load_settings

    with connect(load_settings("local")) as database:
        Queue("Sales", database).send(b"hello")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rowpost.version import __version__

if TYPE_CHECKING:
    from rowpost.database.connection import Connection, connect
    from rowpost.endpoint.endpoint import Endpoint
    from rowpost.errors import (
        CatalogueError,
        DatabaseError,
        DatabaseUnavailable,
        Deadlock,
        InvalidMessage,
        MessageError,
        NoReply,
        QueueNotFound,
        RowpostError,
        SchemaMissing,
        SettingsError,
    )
    from rowpost.handling.context import Bus, Context
    from rowpost.outbox.declaration import Outbox
    from rowpost.recoverability.policy import Recoverability
    from rowpost.sagas.conflicts import ConflictPolicy
    from rowpost.sagas.context import SagaContext
    from rowpost.sagas.declaration import Saga, handles, starts
    from rowpost.sagas.scatter_gather import ScatterGather
    from rowpost.settings.environment import Settings, load_settings
    from rowpost.testing import SagaTest
    from rowpost.transport.error_queue import ErrorQueue
    from rowpost.transport.queue import Queue
    from rowpost.wire.message import BrowsedMessage, Message, OutgoingMessage
    from rowpost.wire.message_types import message_type
    from rowpost.workers.supervisor import Supervisor

__all__ = [
    "BrowsedMessage",
    "Bus",
    "CatalogueError",
    "ConflictPolicy",
    "Connection",
    "Context",
    "DatabaseError",
    "DatabaseUnavailable",
    "Deadlock",
    "Endpoint",
    "ErrorQueue",
    "InvalidMessage",
    "Message",
    "MessageError",
    "NoReply",
    "Outbox",
    "OutgoingMessage",
    "Queue",
    "QueueNotFound",
    "Recoverability",
    "RowpostError",
    "Saga",
    "SagaContext",
    "SagaTest",
    "ScatterGather",
    "SchemaMissing",
    "Settings",
    "SettingsError",
    "Supervisor",
    "__version__",
    "connect",
    "handles",
    "load_settings",
    "message_type",
    "starts",
]

_MODULES = {
    "ConflictPolicy": "rowpost.sagas.conflicts",
    "Connection": "rowpost.database.connection",
    "connect": "rowpost.database.connection",
    "Endpoint": "rowpost.endpoint.endpoint",
    "CatalogueError": "rowpost.errors",
    "DatabaseError": "rowpost.errors",
    "DatabaseUnavailable": "rowpost.errors",
    "Deadlock": "rowpost.errors",
    "InvalidMessage": "rowpost.errors",
    "MessageError": "rowpost.errors",
    "NoReply": "rowpost.errors",
    "QueueNotFound": "rowpost.errors",
    "RowpostError": "rowpost.errors",
    "SchemaMissing": "rowpost.errors",
    "SettingsError": "rowpost.errors",
    "Bus": "rowpost.handling.context",
    "Context": "rowpost.handling.context",
    "Outbox": "rowpost.outbox.declaration",
    "Recoverability": "rowpost.recoverability.policy",
    "SagaContext": "rowpost.sagas.context",
    "Saga": "rowpost.sagas.declaration",
    "handles": "rowpost.sagas.declaration",
    "starts": "rowpost.sagas.declaration",
    "ScatterGather": "rowpost.sagas.scatter_gather",
    "Settings": "rowpost.settings.environment",
    "load_settings": "rowpost.settings.environment",
    "SagaTest": "rowpost.testing",
    "ErrorQueue": "rowpost.transport.error_queue",
    "Queue": "rowpost.transport.queue",
    "BrowsedMessage": "rowpost.wire.message",
    "Message": "rowpost.wire.message",
    "OutgoingMessage": "rowpost.wire.message",
    "message_type": "rowpost.wire.message_types",
    "Supervisor": "rowpost.workers.supervisor",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module at its first use (PEP 562). Raises AttributeError."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'rowpost' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
