"""Names of message types on the wire, and the classes that bear them in Python.

    @message_type("Shop.Messages.OrderPlaced")
    @dataclass(frozen=True)
    class OrderPlaced: ...

A class without the decorator is named by its module and its own name. A class that derives from another message class
is that type too: events reach the subscribers of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeVar

__all__ = [
    "enclosed_type_names",
    "find_class",
    "first_type",
    "message_type",
    "split_enclosed_types",
    "time_to_be_received_of",
    "type_name",
    "type_names",
]

T = TypeVar("T", bound=type)
_NAME = "__rowpost_type__"
_TIME = "__rowpost_time_to_be_received__"
_classes: dict[str, type] = {}
#: what `enclosed_type_names` found, for each message that is sent
_enclosed: dict[type, str] = {}


def message_type(name: str, *, time_to_be_received: timedelta | None = None) -> Callable[[T], T]:
    """Name a class on the wire, for sending and for receiving.

    Args:
        name: the full name of the type.
        time_to_be_received: its messages expire after this time, unless a send names another. None takes that of the class that this
            one derives from, as NServiceBus does.

    >>> @message_type("Shop.Messages.OrderPlaced")
    ... class OrderPlaced: ...
    >>> type_name(OrderPlaced)
    'Shop.Messages.OrderPlaced'
    """

    def decorate(cls: T) -> T:
        setattr(cls, _NAME, name)
        if time_to_be_received is not None:
            setattr(cls, _TIME, time_to_be_received)
        _classes[name] = cls
        _enclosed.clear()
        return cls

    return decorate


def find_class(name: str) -> type | None:
    """The class that message_type named so, the latest one; None where this program has none."""
    return _classes.get(name)


def type_name(cls: type) -> str:
    """The wire's name of a class: the one it was given, else module and class."""
    return cls.__dict__.get(_NAME) or f"{cls.__module__}.{cls.__qualname__}"


def time_to_be_received_of(cls: type) -> timedelta | None:
    """The time after which messages of a class expire; None if they do not."""
    return getattr(cls, _TIME, None)


def type_names(cls: type) -> tuple[str, ...]:
    """The names of a class and of the message classes that it derives from, the most derived first."""
    bases = (base for base in cls.__mro__[1:] if _NAME in base.__dict__)
    return (type_name(cls), *(type_name(base) for base in bases))


def enclosed_type_names(cls: type) -> str:
    """The header NServiceBus.EnclosedMessageTypes of a class's messages."""
    found = _enclosed.get(cls)
    if found is None:
        found = _enclosed[cls] = ";".join(type_names(cls))
    return found


def first_type(header: str | None) -> str:
    """The full name of the most derived type in the header; empty if it names none.

    >>> first_type("Shop.Vip, Shop, Version=1.0.0.0;Shop.Placed, Shop"), first_type(None)
    ('Shop.Vip', '')
    """
    return next(iter(split_enclosed_types(header)), "")


def split_enclosed_types(header: str | None) -> Iterable[str]:
    """The full names in the header, the most derived first, without assembly, version and the like.

    >>> list(split_enclosed_types("Shop.Vip, Shop, Version=1.0.0.0;Shop.Placed, Shop"))
    ['Shop.Vip', 'Shop.Placed']
    """
    for part in (header or "").split(";"):
        name = part.partition(",")[0].strip()
        if name:
            yield name
