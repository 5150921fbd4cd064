"""What a user writes: a class per saga, with a method per message type."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from rowpost.errors import SettingsError
from rowpost.handling.context import Context
from rowpost.handling.handlers import check_runs, name_of
from rowpost.sagas.correlation import KINDS
from rowpost.sagas.state import property_name
from rowpost.settings.environment import SagaSettings
from rowpost.wire.message_types import type_name

__all__ = ["Declaration", "Method", "Saga", "handles", "starts"]

State = TypeVar("State")
Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__rowpost_saga_messages__"
_VERSION_LIMIT = 23  # the column's

logger = logging.getLogger("rowpost.sagas")


def starts(cls: type, *, subscribe: bool = False) -> Callable[[Function], Function]:
    """Marks the method that handles a message class; a message without an instance starts one.

    Args:
        cls: the message's class.
        subscribe: it is an event of somebody else: subscribe to it when the endpoint starts.
    """
    return _marks(cls, True, subscribe)


def handles(cls: type, *, subscribe: bool = False) -> Callable[[Function], Function]:
    """Marks the method that handles a message class, or a timeout, for instances that are there. Arguments as for starts."""
    return _marks(cls, False, subscribe)


def _marks(cls: type, starting: bool, subscribe: bool) -> Callable[[Function], Function]:
    def mark(function: Function) -> Function:
        check_runs(function, SettingsError, name_of(function))
        setattr(function, _MARK, (*getattr(function, _MARK, ()), (cls, starting, subscribe)))
        return function

    return mark


@dataclass(frozen=True)
class Method:
    """A method, the message class that it handles, and the message's field that holds the correlation value."""

    name: str
    cls: type
    starts: bool
    subscribe: bool
    field: str | None


@dataclass(frozen=True)
class Declaration:
    """A saga class as it was declared. `name` is its type on the wire, `property` the state's correlation field."""

    name: str
    state: type
    property: str
    kind: str
    transitional: str | None
    transitional_kind: str | None
    table: str | None
    short_name: str
    optimistic: bool
    lock_timeout: timedelta
    version: str
    renamed: Mapping[str, str]
    removed: tuple[str, ...]
    methods: tuple[Method, ...]

    def table_for(self, endpoint: str) -> str:
        """The table: as the class names it, else endpoint and class, as NServiceBus.Persistence.Sql names it (J6)."""
        return self.table or f"{endpoint.replace('.', '_')}_{self.short_name}"

    def settings_for(self, endpoint: str) -> SagaSettings:
        """What the deployment has to make."""
        transitional = self.transitional and property_name(self.transitional)
        return SagaSettings(
            self.table_for(endpoint), property_name(self.property), self.kind, transitional, self.transitional_kind
        )


class Saga(Generic[State]):
    """One saga. `self.state` is the instance's state, of the class in the brackets: a dataclass.

    Class arguments:
        correlate: by message class, the field that says which instance a message belongs to. Replies and timeouts
            that come back to the saga need none: they bear the instance's id.
        by: the state's field that holds that value; may be left out where the messages' fields all have its name.
            Its type is str, int, UUID or datetime. Its value never changes.
        state: the state's class, where it is not in the brackets.
        concurrency: "pessimistic" locks the instance before the handler runs, so that others wait; "optimistic" lets
            them run, and all but the first to finish fail with SagaConflict and are tried again.
        lock_timeout: how long to wait for the lock.
        table: its table, where it is not to be <endpoint>_<class>.
        transitional: a second field to be stored as a correlation, while sagas move from one to the other.
        renamed, removed: fields of the state that had another name, or are gone (state.py).
        version: of the class, for people who look at the table; 23 characters at most.

    Raises:
        SettingsError: the class cannot work as it is declared.
    """

    declaration: ClassVar[Declaration]
    state: State
    id: UUID
    completed: bool = False

    def __init_subclass__(cls, *, correlate: Mapping[type, str] | None = None, **options: Any) -> None:
        super().__init_subclass__()
        if correlate is not None:
            cls.declaration = _declare(cls, correlate, **options)
        elif options:
            raise SettingsError(f"The saga {cls.__name__} needs correlate={{MessageClass: 'field'}}.")

    def complete(self) -> None:
        """The saga is over: its row is removed when the handler has returned, and later messages find nothing."""
        self.completed = True

    @classmethod
    def not_found(cls, message: Any, context: Context) -> None:
        """Called for a message whose instance is not there, never started or complete; may be overridden.

        This one discards the message with a log line.
        """
        logger.info(
            "No saga %s found for message %s (%s): discarded.", cls.declaration.name, context.message_id, type(message).__name__
        )


def _declare(
    cls: type[Saga],
    correlate: Mapping[type, str],
    by: str | None = None,
    state: type | None = None,
    concurrency: str = "pessimistic",
    lock_timeout: timedelta = timedelta(seconds=30),
    table: str | None = None,
    transitional: str | None = None,
    renamed: Mapping[str, str] | None = None,
    removed: tuple[str, ...] = (),
    version: str = "1.0.0",
) -> Declaration:
    problem = _Problem(cls.__name__)
    if concurrency not in ("pessimistic", "optimistic"):
        raise problem(f"has no concurrency {concurrency!r}. Use pessimistic or optimistic.")
    if not timedelta(0) < lock_timeout < timedelta(days=20):
        raise problem(f"cannot wait {lock_timeout} for a lock: name a time between a millisecond and 20 days.")
    if len(version) > _VERSION_LIMIT:
        raise problem(f"has a version of {len(version)} characters; {_VERSION_LIMIT} fit.")
    state = state or _state_of(cls, problem)
    by = by or _common_field(correlate, problem)
    kinds = _kinds(state, (by, transitional), problem)
    needless = [f.name for f in dataclasses.fields(state) if f.name != by and _needs_value(f)]
    if needless:
        raise problem(f"starts with nothing but {by}: give the other fields of {state.__name__} defaults: {', '.join(needless)}.")
    return Declaration(
        name=type_name(cls),
        state=state,
        property=by,
        kind=kinds[by],
        transitional=transitional,
        transitional_kind=kinds.get(transitional or ""),
        table=table,
        short_name=cls.__name__,
        optimistic=concurrency == "optimistic",
        lock_timeout=lock_timeout,
        version=version,
        renamed=dict(renamed or {}),
        removed=tuple(removed),
        methods=tuple(_methods(cls, correlate, problem)),
    )


class _Problem:
    """Says which saga it is that cannot work."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, text: str) -> SettingsError:
        return SettingsError(f"The saga {self._name} {text}")


def _state_of(cls: type, problem: _Problem) -> type:
    for base in getattr(cls, "__orig_bases__", ()):
        arguments = typing.get_args(base)
        if arguments and dataclasses.is_dataclass(arguments[0]):
            return arguments[0]
    raise problem("names no state: write class X(Saga[XState], …) with a dataclass XState.")


def _common_field(correlate: Mapping[type, str], problem: _Problem) -> str:
    if len(set(correlate.values())) == 1:
        return next(iter(correlate.values()))
    raise problem("is found by fields of several names: say which field of its state holds the value: by='…'.")


def _kinds(state: type, names: tuple[str | None, ...], problem: _Problem) -> dict[str, str]:
    hints = typing.get_type_hints(state)
    kinds = {}
    for name in filter(None, names):
        if name not in hints:
            raise problem(f"is to be found by {name}, which {state.__name__} has not.")
        if hints[name] not in KINDS and not (name != names[0] and _optional(hints[name]) in KINDS):
            known = ", ".join(kind.__name__ for kind in KINDS)
            raise problem(f"is to be found by {name}, whose type in {state.__name__} is none of {known}.")
        kinds[name] = KINDS.get(hints[name]) or KINDS[_optional(hints[name])]
    return kinds


def _optional(hint: Any) -> Any:
    """X of X | None: a second correlation may be unknown yet."""
    inner = [each for each in typing.get_args(hint) if each is not type(None)]
    return inner[0] if len(inner) == 1 else None


def _needs_value(field: dataclasses.Field) -> bool:
    return field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _methods(cls: type, correlate: Mapping[type, str], problem: _Problem) -> Iterator[Method]:
    found: dict[str, Method] = {}
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        for message, starting, subscribe in getattr(function, _MARK, ()):
            wanted = type_name(message)
            if wanted in found:
                raise problem(f"handles {wanted} in two methods, {found[wanted].name} and {name}: keep one.")
            if starting and message not in correlate:
                raise problem(f"is started by {message.__name__}: say which of its fields holds the value: correlate={{{message.__name__}: '…'}}.")
            field = correlate.get(message)
            fields = {each.name for each in dataclasses.fields(message)} if dataclasses.is_dataclass(message) else {field}
            if field is not None and field not in fields:
                raise problem(f"is to be found by {message.__name__}.{field}, which there is not.")
            found[wanted] = Method(name, message, starting, subscribe, field)
    if not any(method.starts for method in found.values()):
        raise problem("is started by no message: mark a method with @starts(MessageClass).")
    unhandled = [each.__name__ for each in correlate if type_name(each) not in found]
    if unhandled:
        raise problem(f"correlates {', '.join(unhandled)}, which no method handles.")
    yield from found.values()
