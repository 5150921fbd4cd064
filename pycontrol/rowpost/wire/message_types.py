"""Names of message types on the wire, and the classes that bear them in Python.

    @message_type("Shop.Messages.OrderPlaced")
    @dataclass(frozen=True)
    class OrderPlaced: ...

A class without the decorator is named by its module and its own name. If another program cannot find it by that name,
because it is a type of Python's own, is defined in a function or in the program's main file, it cannot be sent: no
handler could be registered for it. A class that derives from another message class is that type too: events reach the
subscribers of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import pairwise
from typing import Literal, TypeVar, get_args

from rowpost.errors import InvalidMessage, SettingsError

__all__ = [
    "FULL_NAME",
    "KIND",
    "MessageKind",
    "check_kind",
    "enclosed_type_names",
    "find_class",
    "first_type",
    "message_type",
    "named_types",
    "short_type",
    "split_enclosed_types",
    "time_to_be_received_of",
    "type_key",
    "type_name",
    "type_names",
    "without_assembly",
]

#: the name of a type, with its generic arguments and without its assembly, at the start of what .NET calls an
#: assembly-qualified name
FULL_NAME = r"\s*([^;,\[]+(?:\[[^;]*\])?)"

T = TypeVar("T", bound=type)
_full_name = re.compile(FULL_NAME).match
_brackets = re.compile(r"([\[\]])").split
_names = re.compile(r"[^\[\],]+")
_NAME = "__rowpost_type__"
_TIME = "__rowpost_time_to_be_received__"
#: the attribute of a class that has a kind, or derives from one that has it
KIND = "__rowpost_kind__"
MessageKind = Literal["message", "command", "event"]
#: why a message of a kind has no such intent, and what to do
_NOT_FOR = {
    ("command", "Publish"): "published: it is a command, which has one receiver. Send it with send(…)",
    ("command", "Reply"): "a reply: it is a command, which goes to the endpoint that handles it. Send it with send(…)",
    ("command", "Subscribe"): "subscribed to: it is a command, which is sent to one endpoint. Omit subscribe=True",
    ("event", "Send"): "sent: it is an event, which goes to its subscribers. Publish it with publish(…)",
    ("event", "Reply"): "a reply: it is an event, which goes to its subscribers. Publish it with publish(…)",
}
_OWN_MODULES = ("builtins", "__main__")
_classes: dict[str, type] = {}
#: what `enclosed_type_names` found, for each message that is sent
_enclosed: dict[type, str] = {}


def message_type(
    name: str, *, kind: MessageKind | None = None, time_to_be_received: timedelta | None = None
) -> Callable[[T], T]:
    """Name a class on the wire, for sending and for receiving.

    Args:
        name: the full name of the type.
        kind: a "command" can only be sent, an "event" only be published, and neither can be a reply. Everything can be
            done with a "message". None takes that of the class that this one derives from, else "message".
        time_to_be_received: its messages expire after this time, unless a send names another. None takes that of the
            class that this one derives from, as NServiceBus does.

    Raises:
        SettingsError: there is no such kind.

    >>> @message_type("Shop.Messages.OrderPlaced")
    ... class OrderPlaced: ...
    >>> type_name(OrderPlaced)
    'Shop.Messages.OrderPlaced'
    """

    if kind not in (None, *get_args(MessageKind)):
        raise SettingsError(
            f"The message type {name!r} cannot have the kind {kind!r}: there is no such kind. Use one of: "
            f"{', '.join(get_args(MessageKind))}."
        )

    def decorate(cls: T) -> T:
        setattr(cls, _NAME, name)
        if kind is not None:
            setattr(cls, KIND, kind)
        if time_to_be_received is not None:
            setattr(cls, _TIME, time_to_be_received)
        _classes[type_key(name)] = cls
        _enclosed.clear()
        return cls

    return decorate


def find_class(name: str) -> type | None:
    """Return the class that message_type named so, the latest one; None where this program has none."""
    return _classes.get(type_key(name))


def type_name(cls: type) -> str:
    """Return the wire's name of a class: the one it was given, else module and class."""
    return cls.__dict__.get(_NAME) or f"{cls.__module__}.{cls.__qualname__}"


def time_to_be_received_of(cls: type) -> timedelta | None:
    """Return the time after which messages of a class expire; None if they do not."""
    return getattr(cls, _TIME, None)


def check_kind(cls: type, intent: str, error: type[Exception] = InvalidMessage) -> None:
    """Check that messages of a class may have an intent: "Send", "Publish", "Reply" or "Subscribe".

    Raises:
        error: its kind excludes that.
    """
    reason = _NOT_FOR.get((getattr(cls, KIND, ""), intent))
    if reason is not None:
        raise error(f"The message type {type_name(cls)} cannot be {reason}.")


def type_names(cls: type) -> tuple[str, ...]:
    """Return the names of a class and of the message classes that it derives from, the most derived first."""
    bases = (base for base in cls.__mro__[1:] if _NAME in base.__dict__)
    return (type_name(cls), *(type_name(base) for base in bases))


def named_types(cls: type) -> tuple[str, ...]:
    """Return the names of a class, as `type_names`.

    Raises InvalidMessage if the class has none by which another program finds it.
    """
    if issubclass(cls, (bytes, bytearray, memoryview)):
        raise InvalidMessage(
            "Bytes have no class that names a route or an event. Send them to a queue, with send(bytes(…), to=…, "
            "headers=…), and publish an instance of a message class."
        )
    if not enclosed_type_names(cls):
        raise InvalidMessage(
            f"Cannot send a {type_name(cls)}: its class has no name that a receiver can know. Use a class with "
            "@message_type('Shop.Messages.PlaceOrder'), or send it with headers={'NServiceBus.EnclosedMessageTypes': "
            "…}, which name its type."
        )
    return type_names(cls)


def enclosed_type_names(cls: type) -> str:
    """Return the header NServiceBus.EnclosedMessageTypes of a class's messages.

    Empty if no other program can know the class.
    """
    found = _enclosed.get(cls)
    if found is None:
        names = type_names(cls)
        unknown = cls.__module__ in _OWN_MODULES or "<locals>" in names[0]
        found = _enclosed[cls] = "" if unknown and len(names) == 1 and _NAME not in cls.__dict__ else ";".join(names)
    return found


def first_type(header: str | None) -> str:
    """Return the full name of the most derived type in the header; empty if it names none.

    >>> first_type("Shop.Vip, Shop, Version=1.0.0.0;Shop.Placed, Shop"), first_type(None)
    ('Shop.Vip', '')
    """
    return next(iter(split_enclosed_types(header)), "")


def split_enclosed_types(header: str | None) -> Iterable[str]:
    """Return the full names in the header, the most derived first, without assembly, version and the like.

    >>> list(split_enclosed_types("Shop.Vip, Shop, Version=1.0.0.0;Shop.Placed, Shop"))
    ['Shop.Vip', 'Shop.Placed']
    """
    for part in (header or "").split(";"):
        name = without_assembly(part)
        if name:
            yield name


def without_assembly(name: str) -> str:
    """Return the full name in an assembly-qualified one: the assembly begins at the first comma outside of the brackets
    of generic arguments.

    >>> without_assembly("Shop.Placed, Shop, Version=1.0.0.0"), without_assembly("Shop.Box`1[[System.Int32, mscorlib]], Shop")
    ('Shop.Placed', 'Shop.Box`1[[System.Int32, mscorlib]]')
    """  # noqa: E501
    if "[" not in name:
        return name.partition(",")[0].strip()
    found = _full_name(name)
    return found[1].strip() if found else ""


def type_key(name: str) -> str:
    """Return what two spellings of one type have in common: a full name whose generic arguments have no assemblies, as
    these have versions.

    >>> type_key("Shop.Box`1[[System.Int32, mscorlib, Version=4.0.0.0]]"), type_key("Shop.Pair`2[[Shop.A, Shop],[Shop.B, Shop]]")
    ('Shop.Box`1[[System.Int32]]', 'Shop.Pair`2[[Shop.A],[Shop.B]]')
    """  # noqa: E501
    if "[" not in name:
        return name
    parts = [*_brackets(name), ""]
    return "".join(
        part.partition(",")[0] if after == "]" and part.strip(", ") else part for part, after in pairwise(parts)
    )


def short_type(name: str | None) -> str:
    """Return the name of a type for tables and headings: without namespaces and assemblies.

    >>> short_type("Shop.Messages.Outer+Placed"), short_type("Shop.Box`1[[System.Int32, mscorlib]]"), short_type(None)
    ('Outer+Placed', 'Box`1[[Int32]]', '')
    """
    return _names.sub(lambda found: found[0].rpartition(".")[2] or found[0], type_key(name or ""))
