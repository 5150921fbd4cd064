"""The objects that handlers get in the place of a psycopg connection.

A pair of objects shares the session, the lock and all attributes with the connection. Handlers get the outer one, on
which the driver's raw handle is a property that tells the guard when a handler takes it. What is executed runs on the
inner one, on which the handle is a plain attribute, because the driver reads it five times a statement. Both refuse to
commit, to roll back and to close.

When a handler has ended, every use of its pair raises an error: a thread that kept it would otherwise take part in the
transaction of another message. A pair that nobody has kept, by the counts of its references, is lent again with the
attributes of the connection: making and exchanging objects for each message would cost more than the rest of the guard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from sys import getrefcount
from typing import Any, NoReturn
from weakref import getweakrefcount

import psycopg

__all__ = ["GUARD", "Classes", "Lender", "Over", "asked_by_handler", "classes"]

#: the attribute that holds the guard
GUARD = "rowpost_guard"
_INNER = "rowpost_inner"
_REFUSED = {"commit": "commits", "rollback": "rolls back", "close": "closes"}
#: modules that use the raw handle as they should, and the ids of those that were seen: the driver asks for it several
#: times a statement
_OWN = ("psycopg", "rowpost.")
_own_modules: set[int] = set()


class Lender:
    """Lends objects for one connection to one handler after the other.

    Args:
        connection: the connection.
        attributes: those in which the objects differ from the connection. One of them is the guard.
    """

    def __init__(self, connection: psycopg.Connection, attributes: dict[str, Any]) -> None:
        self._connection, self._attributes = connection, attributes
        kind: Any = type(connection)
        self.classes = classes(kind, attributes.get("cursor_factory"))
        self._outer: Any = None
        self._inner: Any = None
        self._own: dict[str, Any] = {}
        #: the number of attributes, and the counts of references, if nobody has changed or kept anything
        self._size, self._unused = 0, (0, 0, 0, 0)
        #: whether a handler has the objects
        self.lent = False

    def lend(self) -> Any:
        """Return the object that the handler uses for the connection: the same one until `take_back`."""
        if not self.lent:
            if self._outer is None:
                self._make()
            own = self._own
            own.update(self._connection.__dict__)  # not what the last handler has set, such as a row factory
            own.update(self._attributes)
            self.lent = True
        return self._outer

    def outer_of(self, connection: psycopg.Connection) -> Any:
        """Return the object that the handler has, for the one on which a cursor runs."""
        return self._outer if connection is self._inner else connection

    def take_back(self, refuse: Callable[[Any], NoReturn] | None, message: Any) -> None:
        """End the loan.

        If somebody has kept an object, both raise what `refuse` raises when it is called with `message`.
        """
        self.lent = False
        if self._references() != self._unused or len(self._own) != self._size:
            self._own["pgconn"] = self._own[_INNER] = Over(refuse, message)
            self._outer = self._inner = None

    def _make(self) -> None:
        self._outer, self._inner = object.__new__(self.classes.outer), object.__new__(self.classes.inner)
        own = {_INNER: self._inner, **self._connection.__dict__, **self._attributes}
        self._outer.__dict__ = self._inner.__dict__ = self._own = own
        self._size, self._unused = len(own), self._references()

    def _references(self) -> tuple[int, int, int, int]:
        return (
            getrefcount(self._outer),
            getrefcount(self._inner),
            getweakrefcount(self._outer),
            getweakrefcount(self._inner),
        )


class Over:
    """Stands for the session in a connection whose handler has ended."""

    def __init__(self, refuse: Callable[[Any], NoReturn] | None, message: Any) -> None:
        self.__refuse, self.__message = refuse, message

    def __getattr__(self, _: str) -> NoReturn:
        if self.__refuse is not None:
            self.__refuse(self.__message)
        raise psycopg.OperationalError("the handler to which this connection was lent has ended")


class Classes:
    """The classes of what is lent of one class of connections.

    They name the driver's module, by which drivers are told apart.

    Attributes:
        inner: refuses what ends the transaction.
        in_place: also notes who takes the raw handle. A connection can take this class for a while.
        outer: also executes on the inner object.
    """

    def __init__(self, kind: Any, factory: type | None) -> None:
        members: dict[str, Any] = {name: _refusing(kind, name, verb) for name, verb in _REFUSED.items()}
        members["__repr__"] = lambda self: f"<{type(self).__name__} lent to a handler>"
        members["__del__"] = lambda self: None  # the session belongs to the other object: nothing is left open
        members["__module__"] = kind.__module__
        self.inner: type = type(kind.__name__, (kind,), members)
        self.in_place: type = type(kind.__name__, (kind,), {**members, "pgconn": property(_noted_handle)})
        self.outer: type = type(
            kind.__name__, (self.in_place,), {"execute": _executing(kind, factory), "__module__": kind.__module__}
        )


@cache
def classes(kind: Any, factory: Any) -> Classes:
    """Return the classes for a class of connections and its class of cursors, made once."""
    return Classes(kind, factory)


def _refusing(kind: Any, name: str, verb: str) -> Callable[[Any], None]:
    def method(self: Any) -> None:
        self.pgconn.status  # noqa: B018 -- raises if the handler has ended
        guard = self.__dict__[GUARD]
        if guard.refuse is not None:
            guard.refuse(verb)
        getattr(kind, name)(self)

    return method


def _executing(kind: Any, factory: type | None) -> Callable[..., Any]:
    def execute(self: Any, *arguments: Any, **options: Any) -> Any:
        own = self.__dict__
        if own["cursor_factory"] is factory:  # such a cursor knows the outer object
            return own[_INNER].execute(*arguments, **options)
        return kind.execute(self, *arguments, **options)

    return execute


def _noted_handle(self: Any) -> Any:
    if asked_by_handler(2):
        self.__dict__[GUARD].raw_handle_taken()
    return self.__dict__["pgconn"]


def asked_by_handler(depth: int) -> bool:
    """Return whether a handler's own code asks, and not the driver's or rowpost's.

    `depth` counts the functions up to the one that asks.
    """
    module = sys._getframe(depth).f_globals
    if id(module) in _own_modules:
        return False
    own = str(module.get("__name__", "")).startswith(_OWN)
    if own:
        _own_modules.add(id(module))
    return not own
