"""What an endpoint's handlers share in a process: made at its first use, and ended with the process.

    @charges.provides(Client)
    def client():
        with Client() as made:
            yield made                                # what follows runs at the process's end

    @charges.handles(ChargeCard)
    def charge(message, context, client: Client): ...

A provider is a generator that yields once, or a function that returns the resource. An async one runs on the event loop
of `async def` handlers.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rowpost.errors import SettingsError
from rowpost.handling.event_loop import run

__all__ = ["Resources", "wanted_by"]

logger = logging.getLogger("rowpost")

_Provider = TypeVar("_Provider", bound=Callable[..., Any])


class Resources:
    """The resources of one endpoint. Thread-safe.

    Args:
        endpoint: its name, for people.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._providers: dict[type, Callable[[], Any]] = {}
        self._made: dict[type, Any] = {}
        #: generators that have yielded, in the order in which they did
        self._open: list[tuple[type, Any]] = []
        self._lock = threading.RLock()

    def declare(self, kind: type, provider: Callable[[], Any]) -> None:
        """Declare what makes a resource.

        Raises:
            SettingsError: the kind is no class or has a provider, or the provider takes arguments.
        """
        if not isinstance(kind, type):
            raise SettingsError(
                f"provides() of {self._endpoint} takes a class, as in provides(Client); not {kind!r:.60}."
            )
        if kind in self._providers:
            raise SettingsError(f"{self._endpoint} has two providers of {kind.__name__}. Declare one of them.")
        if inspect.signature(provider).parameters:
            raise SettingsError(f"The provider of {kind.__name__} of {self._endpoint} takes arguments, and gets none.")
        self._providers[kind] = provider

    def check(self, handler: str, wanted: Mapping[str, type]) -> None:
        """Check that everything that a handler wants is provided. Raises SettingsError."""
        for name, kind in wanted.items():
            if kind not in self._providers:
                raise SettingsError(
                    f"The handler {handler} of {self._endpoint} asks for {name}: {kind.__name__}, and nothing provides "
                    f"it. Declare it: @endpoint.provides({kind.__name__})."
                )

    def get(self, wanted: Mapping[str, type]) -> dict[str, Any]:
        """Return resources by the names of a handler's arguments, made at their first use.

        Raises:
            SettingsError: a provider yields nothing.
            Exception: what a provider raises; it is called again the next time.
        """
        with self._lock:
            for kind in wanted.values():
                if kind not in self._made:
                    self._made[kind] = self._make(kind)
            return {name: self._made[kind] for name, kind in wanted.items()}

    def close(self) -> None:
        """End all resources, the last one first. An error of one is logged, and does not keep the others."""
        with self._lock:
            self._made.clear()
            while self._open:
                kind, generator = self._open.pop()
                try:
                    self._end(kind, generator)
                except Exception:
                    logger.exception("The resource %s of %s did not end properly", kind.__name__, self._endpoint)

    def _make(self, kind: type) -> Any:
        provider, name = self._providers[kind], f"The provider of {kind.__name__}"
        made = provider()
        if inspect.isgenerator(made):
            yielded = next(made, self)
        elif inspect.isasyncgen(made):
            yielded = run(anext, made, self, name=name)
        else:
            return run(_awaited, made, name=name) if inspect.isawaitable(made) else made
        if yielded is self:
            raise SettingsError(f"{name} of {self._endpoint} yields nothing. Let it yield the resource, once.")
        self._open.append((kind, made))
        return yielded

    def _end(self, kind: type, generator: Any) -> None:
        if inspect.isasyncgen(generator):
            more = run(anext, generator, self, name=f"The end of {kind.__name__}")
        else:
            more = next(generator, self)
        if more is not self:
            raise SettingsError(f"The provider of {kind.__name__} of {self._endpoint} yields twice.")


async def _awaited(made: Any) -> Any:
    return await made


def wanted_by(function: Callable[..., Any], own: int = 2) -> dict[str, type]:
    """Return the classes of the resources that a handler asks for, by its arguments behind its own ones.

    An argument without a class, or with a default, is none.
    """
    try:
        parameters = [*inspect.signature(function, follow_wrapped=False, eval_str=True).parameters.values()]
    except (TypeError, ValueError, NameError):
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        each.name: each.annotation
        for each in parameters[own:]
        if each.kind in named
        and each.default is inspect.Parameter.empty
        and isinstance(each.annotation, type)
        and each.annotation is not inspect.Parameter.empty
        and each.annotation.__module__ != "builtins"
    }
