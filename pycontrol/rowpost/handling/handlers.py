"""Register the handlers of an endpoint, find those of a message, and run them.

`RegisteredHandler` is one handler with its message type. `HandlerRegistry` holds all handlers of an endpoint.
`async def` handlers run as tasks (`event_loop`). `check_runs` refuses functions that cannot be called with a message,
or that run nothing when they are called, such as generators; `check_ran` fails a message whose handler returned
something that is never run: it would be removed unhandled.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from rowpost.errors import NoHandler, SettingsError
from rowpost.handling.async_context import AsyncContext
from rowpost.handling.context import Context
from rowpost.handling.event_loop import is_async, run
from rowpost.handling.observer import HandlerObserver
from rowpost.handling.surroundings import Surroundings
from rowpost.recoverability.outcome import Discard
from rowpost.recoverability.policy import describe
from rowpost.wire.headers import CONTENT_TYPE, ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import Message, format_timestamp, timestamp_now
from rowpost.wire.message_types import find_class, split_enclosed_types, type_key
from rowpost.wire.serialization import Serializers, named_in_body

__all__ = [
    "ENCLOSED_MESSAGE_TYPES",
    "Handle",
    "HandlerRegistry",
    "RegisteredHandler",
    "call_async",
    "check_ran",
    "check_runs",
    "name_of",
]

REMEMBERED_TYPES = 1000

logger = logging.getLogger("rowpost")

#: a plain function of a message and a Context, or an `async def` one of a message and an AsyncContext
Handle = Callable[[Any, Any], Any]

_GENERATORS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_INJECTED = re.compile(r"Depend|Inject|Provide|Security")


def check_runs(
    function: Callable[..., Any],
    error: type[Exception],
    what: str,
    takes: tuple[str, ...] = ("message", "context"),
    *,
    may_be_async: bool = False,
    injected: Iterable[str] = (),
) -> None:
    """Refuse a function that rowpost cannot call, so that it would fail for each message, or that would do nothing when
    it is called.

    Looks through `functools.partial` and at the `__call__` of an object. A plain function that wraps an async one may
    run it, so only `check_ran` can detect that. Of a function that takes `*args`, the arguments are not checked.

    Args:
        function: the function, or another object that can be called.
        error: the class of the error to raise.
        what: names the function in the error's text.
        takes: names of the arguments that rowpost passes, by position.
        may_be_async: `async def` is allowed.
        injected: names of further arguments, which it gets by name.

    Raises:
        error: the function is a generator function or, unless that is allowed, `async def`, or an object whose
            `__call__` is one; it is a class; or it does not take these arguments.
    """
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    if inspect.isclass(called):
        raise error(
            f"{what} is a class: calling it only makes an object. Use a function, a method of an object, or an object "
            "with __call__."
        )
    if any(check(each) for each in (called, getattr(type(called), "__call__", None)) for check in _GENERATORS):  # noqa: B004 -- the method itself
        use = "a plain function, or async def without yield" if may_be_async else "a plain function"
        raise error(f"{what} is a generator: calling it runs nothing. Use {use}.")
    if not may_be_async and is_async(function):
        raise error(f"{what} is async: calling it runs nothing. Use a plain function.")
    _check_arguments(function, error, what, takes, injected)


def _check_arguments(
    function: Callable[..., Any], error: type[Exception], what: str, takes: tuple[str, ...], injected: Iterable[str]
) -> None:
    try:
        signature = inspect.signature(
            function, follow_wrapped=False
        )  # a decorator may add arguments that the wrapped function takes
    except (TypeError, ValueError):  # written in C, without a description of its arguments
        return
    form = f"def {name_of(function).rpartition('.')[2]}({', '.join(takes)})"
    try:
        given = signature.bind(*takes, **dict.fromkeys(injected)).arguments
    except TypeError as reason:
        raise error(
            f"{what} takes {signature}, and is called with {len(takes)} arguments ({reason}). Write it as: {form}"
        ) from reason
    for name, parameter in signature.parameters.items():
        if name not in given and _INJECTED.search(type(parameter.default).__name__):
            raise error(
                f"{what} expects that {name} is injected by its default, which rowpost does not do: it passes "
                f"{', '.join(takes)}, and what a provider of the endpoint makes for an argument's class "
                f"(@endpoint.provides). Write it as: {form}, or bind the rest with functools.partial."
            )


def check_ran(returned: Any, what: str) -> None:
    """Fail an attempt if the handler returned a coroutine or a generator: then nothing has run.

    Raises:
        SettingsError: it did.
    """
    if returned is None or not (
        inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned)
    ):
        return
    if isinstance(returned, Coroutine | Generator):
        returned.close()  # without it, Python warns of a coroutine that was never awaited
    raise SettingsError(
        f"{what} returned a {type(returned).__name__}, which is never run, so the message was not handled. Use a plain "
        "function, or declare the handler itself with async def."
    )


def call_async(
    function: Handle,
    message: Any,
    context: Context,
    name: str,
    view: type[AsyncContext] = AsyncContext,
    noted: Handle | None = None,
) -> Any:
    """Run an `async def` handler with a view of its context, and return what it returns.

    `noted` is the handler itself, if functions surround it.

    Raises:
        InvalidMessage: it did not await what was to be sent at once.
        BaseException: whatever it raises.
    """
    seen = view(context)
    returned = run(function, message, seen, name=name, last=seen.complete_session, noted=noted)
    seen.check_awaited()
    return returned


def name_of(function: Any) -> str:
    """Return a handler's name for messages to people."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or repr(function)


class RegisteredHandler:
    """One handler: its message type, the class that bodies are decoded to, and the function.

    `leased`: messages of the type are leased, although the endpoint's others are not.

    A handler of all types has the type "", until `HandlerRegistry.find` has found the type of a message.
    """

    def __init__(
        self,
        type_name: str,
        cls: type,
        function: Handle,
        *,
        leased: bool = False,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.type_name, self.cls, self.function, self.leased = type_name, cls, function, leased
        self._surroundings = surroundings
        self.name = name_of(function)
        self._is_async = is_async(function)
        self._warned = False

    def for_message(self, names: list[str], known: list[tuple[str, type]]) -> RegisteredHandler | None:
        """Return the handler with a message's own type and class; None if it does not handle the message.

        `names` are the message's types, the most derived one first, and `known` those whose classes this program knows.
        """
        if not self.type_name:
            return RegisteredHandler(
                *(known or [(next(iter(names), ""), bytes)])[0], self.function, surroundings=self._surroundings
            )
        for name, cls in known if self.cls.__module__ != "builtins" else ():
            if cls is self.cls:
                break
            if self.cls in getattr(cls, "__mro__", ()):
                return RegisteredHandler(name, cls, self.function, leased=self.leased, surroundings=self._surroundings)
        return self if type_key(self.type_name) in map(type_key, names) else None

    @property
    def full_name(self) -> str:
        """The function's name with its module."""
        return f"{getattr(self.function, '__module__', None) or '?'}.{self.name}"

    def facts(self, start: float) -> dict[str, str]:
        """Return what the error queue shows of a failure in this handler, as NServiceBus does.

        `start` is a time of `time.time()`.
        """
        return {
            "Message type": self.type_name,
            "Handler type": self.full_name,
            "Handler start time": format_timestamp(datetime.fromtimestamp(start, UTC)),
            "Handler failure time": timestamp_now(),
            "Handler canceled": "False",
        }

    def call(self, message: Any, context: Context) -> None:
        """Run the handler. A value that it returns is ignored; the first one is logged as a warning.

        Raises:
            SettingsError: the handler returned a coroutine or a generator, which is never run.
            Exception: whatever the handler raises.
        """
        function, surroundings = self.function, self._surroundings
        if surroundings is not None and surroundings.any:
            function = surroundings.around(function)
        if self._is_async:
            returned = call_async(
                function, message, context, f"The handler {self.name} of {context.endpoint.name}", noted=self.function
            )
        else:
            returned = function(message, context)
        if context.mapped is not None:
            context.complete_session()
        if returned is None:
            return
        check_ran(returned, f"The handler {self.name} of {context.endpoint.name}")
        if not self._warned:
            self._warned = True
            logger.warning(
                "The handler %s of %s returned a %s. The returned value is ignored. To send a reply, use "
                "context.reply.",
                self.name, context.endpoint.name, type(returned).__name__,
            )  # fmt: skip


class HandlerRegistry:
    """All handlers of an endpoint."""

    def __init__(self, endpoint: str, serializers: Serializers) -> None:
        self._endpoint, self._serializers = endpoint, serializers
        self._all: list[RegisteredHandler] = []
        self._found: dict[str | None, list[RegisteredHandler]] = {}
        #: None unless the environment has telemetry
        self.observer: HandlerObserver | None = None

    def add(self, handler: RegisteredHandler) -> None:
        """Add a handler."""
        self._all.append(handler)
        self._found.clear()

    def clear(self) -> None:
        """Remove all handlers."""
        self._all.clear()
        self._found.clear()

    def run(self, message: Message, context: Context) -> Discard | None:
        """Run all handlers of a message, in the order of their registration. Return why, if all of them discarded it.

        The body is decoded once for each class, so that handlers may get the same object.

        Raises:
            NoHandler: no handler is registered for its types.
            MessageNotDeserialized: the body cannot be decoded to a handler's class.
            Exception: whatever a handler raises.
        """
        handled, discards, observer = False, context.discards, self.observer
        found = self.find(message)
        if observer is not None:
            observer.found(found)
        cls = found[0].cls
        decoded = self.decode(message, cls)
        others: dict[type, Any] = {}
        for handler in found:
            before = len(discards)
            body = decoded if handler.cls is cls else self._decoded_once(message, handler.cls, others)
            start = time.time()
            try:
                if observer is None:
                    handler.call(body, context)
                else:
                    observer.invoke(handler, body, context)
            except Exception as error:
                describe(error, handler.facts(start))
                raise
            handled |= len(discards) == before
            if context.handlers_stopped:
                self._log_stop(context, handler, found[found.index(handler) + 1 :])
                break
        return self._discarded(context, handled) if discards else None

    def _decoded_once(self, message: Message, cls: type, bodies: dict[type, Any]) -> Any:
        if cls not in bodies:
            bodies[cls] = self.decode(message, cls)
        return bodies[cls]

    def _log_stop(self, context: Context, by: RegisteredHandler, others: list[RegisteredHandler]) -> None:
        if others:
            logger.info(
                "The handler %s of %s stopped the handlers of message %s. Not called: %s.",
                by.name, self._endpoint, context.message_id, ", ".join(each.name for each in others),
            )  # fmt: skip

    def _discarded(self, context: Context, handled: bool) -> Discard | None:
        """Return why the message was discarded; None if another handler handled it. Then each reason is logged."""
        reasons = [each for each in context.discards if not each.elsewhere] or ([] if handled else context.discards)
        if not handled:
            return Discard("; ".join(each.reason for each in reasons), all(each.expected for each in reasons))
        for each in reasons:
            logger.log(
                logging.INFO if each.expected else logging.WARNING,
                "One of several handlers of %s discarded message %s: %s.",
                self._endpoint,
                context.message_id,
                each.reason,
            )
        return None

    def read(self, message: Message) -> Iterator[tuple[RegisteredHandler, Any]]:
        """Yield the handlers of a message, each with the message decoded to its class.

        Raises:
            NoHandler: no handler is registered for its types.
            MessageNotDeserialized: the body cannot be decoded to a handler's class.
        """
        for handler in self.find(message):
            yield handler, self.decode(message, handler.cls)

    @property
    def leases_some(self) -> bool:
        """Whether a handler wants its messages leased."""
        return any(each.leased for each in self._all)

    def leases(self, message: Message) -> bool:
        """Return whether a handler of a message wants it leased."""
        try:
            return any(each.leased for each in self.find(message))
        except NoHandler:
            return False

    def find(self, message: Message) -> list[RegisteredHandler]:
        """Return the handlers of all types that the message encloses, in the order of their registration.

        A handler of a class also gets messages of the classes that derive from it, as the derived class, if this
        program knows that class: by `message_type`, or because the endpoint handles it.

        Raises:
            NoHandler: there is none.
        """
        types = message.headers.get(ENCLOSED_MESSAGE_TYPES)
        found = self._found.get(types)
        if found is None:
            names = list(split_enclosed_types(types))
            found = self._find_by_names(names or named_in_body(message.body, self._serializers.default))
            if names and len(self._found) < REMEMBERED_TYPES:
                self._found[types] = found
        return found

    def _find_by_names(self, names: list[str]) -> list[RegisteredHandler]:
        known = list(self._classes(names))
        found = [each for one in self._all if (each := one.for_message(names, known)) is not None]
        if not found:
            handled = ", ".join(sorted({each.type_name for each in self._all})) or "none"
            raise NoHandler(
                f"{self._endpoint} has no handler for {', '.join(names) or 'a message without a type'}. It handles: "
                f"{handled}. Register a handler for this type, or send the message to the endpoint that handles it."
            )
        return found

    def _classes(self, names: list[str]) -> Iterator[tuple[str, type]]:
        """Yield those types of a message whose classes this program knows, with the classes, in their order."""
        for name in names:
            for each in self._all:
                if type_key(each.type_name) == type_key(name) and each.cls is not bytes:
                    yield name, each.cls
            named = find_class(name)
            if named is not None:
                yield name, named

    def decode(self, message: Message, cls: type) -> Any:
        """Return the body decoded to a class. Raises MessageNotDeserialized."""
        if cls is bytes:
            return message.body
        return self._serializers.find(message.headers.get(CONTENT_TYPE)).decode(message.body, cls)
