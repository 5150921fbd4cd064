"""One handler of an endpoint: the message type it wants, the class that the body becomes, and the call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rowpost.context import Context
from rowpost.errors import SettingsError

__all__ = ["Handle", "Handling"]

logger = logging.getLogger("rowpost")

Handle = Callable[[Any, Context], Any]


class Handling:
    """One handler."""

    def __init__(self, type_name: str, cls: type, function: Handle) -> None:
        self.type_name, self.cls, self.function = type_name, cls, function
        self._name = getattr(function, "__qualname__", repr(function))
        self._warned = False

    def call(self, message: Any, context: Context) -> None:
        """Runs the handler. What it returns is ignored, with a warning.

        Raises:
            SettingsError: it returned a coroutine, which nobody would run. Whatever the handler raises.
        """
        returned = self.function(message, context)
        if returned is None:
            return
        if inspect.isawaitable(returned):
            with suppress(AttributeError):
                returned.close()
            raise SettingsError(f"The handler {self._name} of {context.endpoint.name} returned a coroutine. Write a plain function.")
        if not self._warned:
            self._warned = True
            logger.warning(
                "The handler %s of %s returned a %s: what a handler returns is ignored. To answer, use context.reply.",
                self._name, context.endpoint.name, type(returned).__name__,
            )  # fmt: skip
