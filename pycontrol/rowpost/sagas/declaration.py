"""Declare a saga: a class per saga, with a method per message type.

`Saga` is the base class; `starts`, `handles` and `timeout` mark its methods. The class is checked when it is created.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from rowpost.errors import SagaInstanceMissing, SagaInstanceRequired, SettingsError
from rowpost.handling.context import Context
from rowpost.handling.handlers import check_runs, name_of
from rowpost.handling.resources import wanted_by
from rowpost.sagas.correlation import KINDS, Header
from rowpost.settings.environment import SagaSettings
from rowpost.settings.saga import CorrelationType
from rowpost.wire.dotnet_values import property_name
from rowpost.wire.message_types import type_key, type_name, type_names

__all__ = ["METHODS_OWN", "Method", "Saga", "SagaDeclaration", "handles", "starts", "timeout"]

State = TypeVar("State")
Function = TypeVar("Function", bound=Callable[..., Any])
#: returns an error that names the saga, with a text
_Problem = Callable[[str], SettingsError]
_MARK = "__rowpost_saga_messages__"
_METHODS_ARGUMENTS = ("self", "message", "context")
#: how many arguments of a method come before the resources that it asks for
METHODS_OWN = len(_METHODS_ARGUMENTS)
_VERSION_LIMIT = 23  # the length of the column SagaTypeVersion
WITHOUT_INSTANCE = ("discard", "retry", "error")
#: a type's full name, as headers have it: `Shop.Orders`, `Shop.Outer+Orders`
_NAME = re.compile(r"[^\W\d]\w*([.+]\w+)*")


def starts(cls: type, *, subscribe: bool = False) -> Callable[[Function], Function]:
    """Mark the method that handles a message class; if no instance exists, the message starts one.

    Args:
        cls: the message's class.
        subscribe: subscribe to this event of another endpoint when the endpoint starts.
    """
    return _marks(cls, "starts", subscribe)


def handles(cls: type, *, subscribe: bool = False) -> Callable[[Function], Function]:
    """Mark the method that handles a message class for existing instances. Arguments as for `starts`.

    It also handles timeouts of the class, if the saga has no `timeout` method for it.
    """
    return _marks(cls, "handles", subscribe)


def timeout(cls: type) -> Callable[[Function], Function]:
    """Mark the method that handles the timeouts of a message class, and no other messages of this class."""
    return _marks(cls, "timeout", False)


def _marks(cls: type, kind: str, subscribe: bool) -> Callable[[Function], Function]:
    def mark(function: Function) -> Function:
        wanted = wanted_by(function, METHODS_OWN)
        check_runs(
            function, SettingsError, name_of(function), takes=_METHODS_ARGUMENTS, may_be_async=True, injected=wanted
        )
        setattr(function, _MARK, (*getattr(function, _MARK, ()), (cls, kind, subscribe)))
        return function

    return mark


@dataclass(frozen=True)
class Method:
    """A method of a saga for the message class `cls`, marked as `kind`: "starts", "handles" or "timeout".

    `field` has the correlation value; None if the class has no mapping. `starts`: a message starts an instance, because
    the class or a base class does. `takes_timeouts`: timeouts of the class come to this method.
    """

    name: str
    cls: type
    kind: str
    subscribe: bool
    field: str | Header | None
    starts: bool = False
    takes_timeouts: bool = False

    def value_in(self, message: Any, headers: Mapping[str, str | None]) -> Any:
        """Return the correlation value of a message, a header's as text; None if it has none."""
        if isinstance(self.field, Header):
            return headers.get(self.field.name)
        return getattr(message, self.field or "", None)


@dataclass(frozen=True)
class SagaDeclaration:
    """The checked declaration of a saga class.

    `name` is its type in headers, `property` the state's correlation field.
    """

    name: str
    state: type
    property: str
    kind: CorrelationType
    transitional: str | None
    transitional_kind: CorrelationType | None
    table: str | None
    short_name: str
    optimistic: bool
    lock_timeout: timedelta
    version: str
    renamed: Mapping[str, str]
    removed: tuple[str, ...]
    without_instance: str
    methods: tuple[Method, ...]

    def table_for(self, endpoint: str) -> str:
        """Return the table's name: as declared, or endpoint and class, as NServiceBus.Persistence.Sql names it."""
        return self.table or f"{endpoint.replace('.', '_')}_{self.short_name}"

    def takes_timeouts_of(self, cls: type) -> bool:
        """Return whether a method handles timeouts of a message class or of one of its base classes."""
        handled = {type_key(type_name(each.cls)) for each in self.methods if each.takes_timeouts}
        return not handled.isdisjoint(map(type_key, type_names(cls)))

    def settings_for(self, endpoint: str, outbox: str = "") -> SagaSettings:
        """Return the table that the deployment has to create, in the business database of an outbox if it is named."""
        transitional = self.transitional and property_name(self.transitional)
        kinds = self.kind, transitional, self.transitional_kind
        return SagaSettings(self.table_for(endpoint), property_name(self.property), *kinds, outbox=outbox)


class Saga(Generic[State]):
    """Base class of sagas. `self.state` is the instance's state, a dataclass that the class names in brackets.

    Class arguments:
        correlate: for each message class, the field or the `Header` that identifies the instance. A class's mapping
            serves the classes that derive from it. Replies and timeouts of the saga need none, because they contain the
            instance's id.
        by: the state's field with the same value. May be omitted if all fields in `correlate` have its name. Its type
            is str, int, UUID or datetime. Its value cannot change.
        state: the state's class, if it is not given in brackets.
        concurrency: "pessimistic" locks the instance before the handler runs, so that other messages wait. "optimistic"
            lets them run; all but the first to finish fail with SagaConflict and are retried.
        lock_timeout: maximum time to wait for the lock.
        name: the saga's type in headers and reports; by default module and class. A saga that is renamed or moved keeps
            its pending timeouts and, if the class has another name, its table with the former name.
        table: the table's name; by default <endpoint>_<class>, or <endpoint>_<last part of the name>.
        transitional: a second field to store as a correlation value, while sagas move from one field to another.
        without_instance: what happens to a message that starts no instance and finds none. "discard" drops it, with an
            event. "retry" fails the attempt, so that the endpoint's recoverability decides: the message that starts the
            instance may be late. "error" moves the message to the error queue. A timeout of an instance that is
            complete is always discarded.
        renamed, removed: fields of the state that were renamed or removed, see `state.py`.
        version: version of the class, stored for people who read the table; at most 23 characters.

    Raises:
        SettingsError: the declaration is invalid.
    """

    declaration: ClassVar[SagaDeclaration]
    state: State
    completed: bool = False
    _id: UUID

    def __init_subclass__(cls, *, correlate: Mapping[type, str | Header] | None = None, **options: Any) -> None:
        super().__init_subclass__()
        if correlate is not None:
            cls.declaration = _declare(cls, correlate, **options)
        elif options:
            raise SettingsError(
                f"The saga {cls.__name__} has no correlation. Add the class argument correlate={{MessageClass: "
                f"'field'}}."
            )

    @property
    def id(self) -> UUID:
        """The instance's id. It cannot be set."""
        return self._id

    @id.setter
    def id(self, value: Any) -> None:
        raise AttributeError(
            f"The id of an instance of {type(self).__name__} cannot be set: its timeouts and replies find it by this "
            "id. Keep another value in the state."
        )

    def complete(self) -> None:
        """Complete the saga: its row is removed after the handler has returned, and later messages find no instance."""
        self.completed = True

    @classmethod
    def not_found(cls, message: Any, context: Context) -> None:
        """Handle a message that finds no instance, because it never started or is complete. May be overridden.

        The default does what the class argument `without_instance` says.

        Raises:
            SagaInstanceMissing: `without_instance` is "retry" or "error".
        """
        reason = f"there is no instance of the saga {cls.declaration.name} for it: it never started, or is complete"
        if cls.declaration.without_instance == "discard":
            context.discard(reason)
            return
        error = SagaInstanceMissing if cls.declaration.without_instance == "retry" else SagaInstanceRequired
        raise error(f"The {type(message).__name__} {context.message_id} cannot be handled: {reason}.")


def _declare(
    cls: type[Saga[Any]],
    correlate: Mapping[type, str | Header],
    by: str | None = None,
    name: str | None = None,
    state: type | None = None,
    concurrency: str = "pessimistic",
    lock_timeout: timedelta = timedelta(seconds=30),
    table: str | None = None,
    transitional: str | None = None,
    renamed: Mapping[str, str] | None = None,
    removed: tuple[str, ...] = (),
    version: str = "1.0.0",
    without_instance: str = "discard",
) -> SagaDeclaration:
    def problem(text: str) -> SettingsError:
        return SettingsError(f"The saga {cls.__name__} {text}")

    if concurrency not in ("pessimistic", "optimistic"):
        raise problem(f"has the unknown concurrency {concurrency!r}. Use pessimistic or optimistic.")
    if without_instance not in WITHOUT_INSTANCE:
        raise problem(f"has the unknown without_instance {without_instance!r}. Use {', '.join(WITHOUT_INSTANCE)}.")
    if not timedelta(0) < lock_timeout < timedelta(days=20):
        raise problem(f"has the lock_timeout {lock_timeout}. Use a time between a millisecond and 20 days.")
    if name is not None and not _NAME.fullmatch(name):
        raise problem(f"has the name {name!r}. Write it as a type's full name: letters, digits and _, with dots.")
    if len(version) > _VERSION_LIMIT:
        raise problem(f"has a version of {len(version)} characters; the maximum is {_VERSION_LIMIT}.")
    state = state or _state_of(cls, problem)
    by = by or _common_field(correlate, problem)
    kinds = _kinds(state, (by, transitional), problem)
    check_runs(cls.not_found, SettingsError, f"{cls.__name__}.not_found")
    required = [f.name for f in dataclasses.fields(state) if f.name != by and _needs_value(f)]
    if required:
        raise problem(
            f"starts with no value but {by}. Give these fields of {state.__name__} a default: {', '.join(required)}."
        )
    return SagaDeclaration(
        name=name or type_name(cls),
        state=state,
        property=by,
        kind=kinds[by],
        transitional=transitional,
        transitional_kind=kinds.get(transitional or ""),
        table=table,
        short_name=re.split("[.+]", name)[-1] if name else cls.__name__,
        optimistic=concurrency == "optimistic",
        lock_timeout=lock_timeout,
        version=version,
        renamed=dict(renamed or {}),
        removed=tuple(removed),
        without_instance=without_instance,
        methods=tuple(_methods(cls, correlate, problem)),
    )


def _state_of(cls: type, problem: _Problem) -> type:
    for base in getattr(cls, "__orig_bases__", ()):
        arguments = typing.get_args(base)
        if arguments and isinstance(arguments[0], type) and dataclasses.is_dataclass(arguments[0]):
            return arguments[0]
    raise problem("has no state. Write class X(Saga[XState], …) with a dataclass XState.")


def _common_field(correlate: Mapping[type, str | Header], problem: _Problem) -> str:
    names = {each for each in correlate.values() if isinstance(each, str)}
    if len(names) == 1:
        return names.pop()
    raise problem("is correlated by headers or by different fields. Name the state's field with the value: by='…'.")


def _kinds(state: type, names: tuple[str | None, ...], problem: _Problem) -> dict[str, CorrelationType]:
    hints = typing.get_type_hints(state)
    kinds = {}
    for name in filter(None, names):
        if name not in hints:
            raise problem(f"is correlated by {name}, but {state.__name__} has no such field.")
        if hints[name] not in KINDS and not (name != names[0] and _optional(hints[name]) in KINDS):
            known = ", ".join(kind.__name__ for kind in KINDS)
            raise problem(f"is correlated by {name}, whose type in {state.__name__} must be one of {known}.")
        kinds[name] = KINDS.get(hints[name]) or KINDS[_optional(hints[name])]
    return kinds


def _optional(hint: Any) -> Any:
    """Return X of X | None: a second correlation value may be missing at first."""
    inner = [each for each in typing.get_args(hint) if each is not type(None)]
    return inner[0] if len(inner) == 1 else None


def _needs_value(field: dataclasses.Field[Any]) -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _methods(cls: type, correlate: Mapping[type, str | Header], problem: _Problem) -> Iterator[Method]:
    found: dict[tuple[str, bool], Method] = {}
    for name in dict.fromkeys(name for each in reversed(cls.__mro__) for name in vars(each)):  # as they are written
        function = getattr(cls, name)
        for message, kind, subscribe in getattr(function, _MARK, ()):
            key = type_name(message), kind == "timeout"
            if key in found:
                raise problem(f"handles {key[0]} in two methods, {found[key].name} and {name}. Remove one of them.")
            field = next((correlate[each] for each in message.__mro__ if each in correlate), None)
            found[key] = Method(name, message, kind, subscribe, field)
            _check_field(found[key], problem)
    starting = tuple(each.cls for each in found.values() if each.kind == "starts")
    timed = [each.cls for each in found.values() if each.kind == "timeout"]
    if not starting:
        raise problem("is started by no message. Mark a method with @starts(MessageClass).")
    unhandled = [
        each.__name__ for each in correlate if not any(issubclass(method.cls, each) for method in found.values())
    ]
    if unhandled:
        raise problem(f"correlates {', '.join(unhandled)}, but no method handles it. Remove it, or add a method.")
    for each in found.values():
        others = each.kind == "handles" and not any(issubclass(other, each.cls) for other in timed)
        starts = each.kind != "timeout" and issubclass(each.cls, starting) and each.field is not None
        yield replace(each, starts=starts, takes_timeouts=each.kind == "timeout" or others)


def _check_field(method: Method, problem: _Problem) -> None:
    """Refuse a method whose messages cannot identify an instance."""
    message, field = method.cls, method.field
    if method.kind == "starts" and field is None:
        raise problem(
            f"is started by {message.__name__}, which has no correlation. Add correlate={{{message.__name__}: '…'}}."
        )
    fields = {each.name for each in dataclasses.fields(message)} if dataclasses.is_dataclass(message) else {field}
    if isinstance(field, str) and field not in fields:
        raise problem(f"is correlated by {message.__name__}.{field}, but there is no such field.")
