"""Django's connection of an alias, in the transaction of a message.

    with django_connection(database, "default"):
        Order.objects.create(number=42)          # commits with the message

Within the block, Django's connection in this thread is another object, on the session of the message's transaction. For
Django an atomic block is open, which somebody else ends: its own `atomic()` is a savepoint, and it refuses to commit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rowpost.database.connection import Connection
from rowpost.errors import SettingsError

__all__ = ["django_connection"]

_MISSING = "context.django() needs the package django. Run: pip install django"
_own = threading.local()


@contextmanager
def django_connection(database: Connection, alias: str) -> Iterator[Any]:
    """Let Django's connection of an alias be a message's within a block. Yields it.

    Raises:
        SettingsError: Django is not installed, the alias is not for PostgreSQL, or no transaction is open.
    """
    try:
        from django.db import connections
        from django.db.transaction import Atomic, TransactionManagementError
    except ImportError as error:
        raise SettingsError(_MISSING) from error
    if database.engine != "postgresql" or connections[alias].vendor != "postgresql":
        raise SettingsError(
            f"context.django({alias!r}) works on PostgreSQL only. Here the queue's engine is {database.engine}, and "
            f"Django's is {connections[alias].vendor}."
        )
    if database.guard is None or not database.in_transaction:
        raise SettingsError(
            "context.django() works within the transaction of a message, and none is open here: the transaction mode "
            "is none, or this is not a handler."
        )
    former, lent = connections[alias], _of_thread(alias)
    if former is lent:  # a block within a block, such as of a function that the handler calls
        yield lent
        return
    lent.connection = _driver_connection(database, lent)
    lent.in_atomic_block, lent.autocommit, lent.needs_rollback = True, False, False
    lent.atomic_blocks, lent.savepoint_ids, lent.run_on_commit = [Atomic(alias, True, False)], [], []
    connections[alias] = lent
    try:
        yield lent
        if lent.needs_rollback:
            raise TransactionManagementError(
                "An error occurred in an atomic block without a savepoint, so that the transaction cannot be committed."
            ) from lent.rollback_exc
    finally:
        connections[alias] = former
        lent.connection = None
        lent.in_atomic_block = False


def _of_thread(alias: str) -> Any:
    """Return the object that is Django's connection within blocks of this thread. It remembers what the server can."""
    from django.db import connections

    if getattr(_own, "connections", None) is None:
        _own.connections = {}
    if alias not in _own.connections:
        made: Any = connections.create_connection(alias)
        _own.connections[alias] = made
        made.on_commit = _refuse_on_commit
    return _own.connections[alias]


def _driver_connection(database: Connection, django: Any) -> Any:
    """Return psycopg's connection on the message's session, with Django's types and cursors."""
    from django.conf import settings
    from django.db.backends.postgresql.base import Cursor  # type: ignore[attr-defined] # its stubs leave it out
    from django.db.backends.postgresql.psycopg_any import get_adapters_template

    return database.lend_mapped(types=get_adapters_template(settings.USE_TZ, django.timezone), cursors=Cursor)


def _refuse_on_commit(function: Any, robust: bool = False) -> NoReturn:
    raise SettingsError(
        "transaction.on_commit is not called in a handler: Django does not commit, the message does. Send a message "
        "with context.send: it is sent if the handler's transaction commits."
    )
