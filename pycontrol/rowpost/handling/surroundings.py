"""What surrounds the handlers of an endpoint: functions around each call and each send, the resources that handlers ask
for, and the hooks of its worker processes.

    @sales.around
    def bound(message, context, proceed):
        with structlog.contextvars.bound_contextvars(message_id=context.message_id):
            return proceed()

A plain function surrounds plain handlers and methods of sagas, and an `async def` one surrounds `async def` ones. The
first one that was declared is the outermost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from rowpost.errors import SettingsError
from rowpost.handling.event_loop import is_async
from rowpost.handling.hooks import Hooks
from rowpost.handling.resources import Resources, wanted_by
from rowpost.handling.sending import AroundSend

__all__ = ["Around", "Surroundings"]

#: called with a message, its context, and a function without arguments that runs the handler
Around = Callable[[Any, Any, Callable[[], Any]], Any]


class Surroundings:
    """The surroundings of one endpoint's handlers.

    Args:
        endpoint: its name, for people.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.resources = Resources(endpoint)
        self.hooks = Hooks(endpoint)
        #: functions around what the endpoint sends
        self.sends: list[AroundSend] = []
        #: by whether they are async
        self._around: dict[bool, list[Around]] = {False: [], True: []}
        #: by the ids of handlers, which live as long as the endpoint: not all of them can be keys
        self._wanted: dict[int, dict[str, type]] = {}
        self._handlers: list[tuple[Callable[..., Any], str]] = []
        #: whether anything surrounds a handler
        self.any = False
        #: in a test: resources by the names of handlers' arguments
        self.given: Mapping[str, Any] = {}

    def declare(self, function: Around) -> None:
        """Surround handlers with a function."""
        self._around[is_async(function)].append(function)
        self.any = True

    def add(self, handler: Callable[..., Any], name: str, *, own: int = 2) -> dict[str, type]:
        """Note a handler. Return the classes of the resources that it asks for, by its arguments.

        `own` is how many arguments come first: those of the message and the context, and of a method the instance.
        """
        wanted = wanted_by(handler, own)
        self._handlers.append((handler, name))
        if wanted:
            self._wanted[id(handler)] = wanted
            self.any = True
        return wanted

    def check(self, given: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Check what could not be checked when a handler was declared.

        Args:
            given: resources that a test has, by the names of handlers' arguments.

        Raises:
            SettingsError: nothing provides a resource that a handler asks for; or a handler is not surrounded, because
                the functions around are of the other kind.
        """
        for handler, name in self._handlers:
            wanted = self._wanted.get(id(handler), {})
            self.resources.check(name, {each: kind for each, kind in wanted.items() if each not in given})
            kind = is_async(handler)
            if self._around[not kind] and not self._around[kind]:
                is_a, other = ("async", "an async def") if kind else ("a plain function", "a plain")
                raise SettingsError(
                    f"The handler {name} of {self._endpoint} is {is_a}, and no function around handlers is of that "
                    f"kind. Declare one more with @endpoint.around, as {other} function."
                )

    def around(self, handler: Callable[..., Any], noted: Callable[..., Any] | None = None) -> Callable[[Any, Any], Any]:
        """Return a handler with its surroundings. Called in the thread that handles the message.

        `noted` is what was given to `add`, if it is not the handler itself: the function of a method.

        Raises:
            Exception: what a provider of a resource raises.
        """
        wanted = self._wanted.get(id(noted or handler))
        called = partial(handler, **self._resources(wanted)) if wanted else handler
        for function in reversed(self._around[is_async(handler)]):
            called = partial(_surrounded, function, called)
        return called

    def close(self) -> None:
        """Run the hooks of the stop, and end what handlers shared."""
        self.hooks.stop()
        self.resources.close()

    def _resources(self, wanted: Mapping[str, type]) -> dict[str, Any]:
        given = {name: self.given[name] for name in wanted if name in self.given}
        return given | self.resources.get({name: kind for name, kind in wanted.items() if name not in given})


def _surrounded(function: Around, called: Callable[[Any, Any], Any], message: Any, context: Any) -> Any:
    return function(message, context, partial(called, message, context))
