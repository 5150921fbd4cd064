"""Functions that an endpoint runs in each of its worker processes, first and last, and at critical errors.

    @charges.at_start
    def report_errors():
        sentry_sdk.init(...)

    @charges.at_critical_error
    def alarm(queue, error):
        page_somebody(f"{queue}: {error}")

What handlers share in a process is a resource (`resources`), which has a start and an end of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Literal

from rowpost.errors import StartFailed
from rowpost.handling.event_loop import is_async, run

__all__ = ["CriticalErrorHook", "Hooks"]

logger = logging.getLogger("rowpost")

#: called with the queue's name and what is wrong
CriticalErrorHook = Callable[[str, str], object]
_When = Literal["start", "stop"]


class Hooks:
    """The hooks of one endpoint. Thread-safe.

    Attributes:
        at_critical_error: the functions for critical errors. The supervisor calls them.

    Args:
        endpoint: its name, for people.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._at: dict[_When, list[tuple[Callable[[], object], str]]] = {"start": [], "stop": []}
        self.at_critical_error: list[CriticalErrorHook] = []
        self._lock = threading.Lock()
        #: how many functions of the start have run in this process; None if all have, or there are none
        self._started: int | None = None

    def declare(self, when: _When, function: Callable[[], object], name: str) -> None:
        """Run a function at the start or the stop of each worker process. The name is for people."""
        self._at[when].append((function, name))
        self._started = 0

    def start(self) -> None:
        """Run the functions of the start that have not run in this process, in the order of their declaration.

        Raises:
            StartFailed: one of them raised. The next call begins with it.
        """
        if self._started is None:
            return
        with self._lock:
            while self._started is not None:
                left = self._at["start"][self._started :]
                if not left:
                    self._started = None
                    return
                function, name = left[0]
                try:
                    self._run(function, name)
                except Exception as error:
                    logger.exception("%s at the start of %s failed", name, self._endpoint)
                    raise StartFailed(
                        f"{name} at the start of {self._endpoint} failed with {type(error).__name__}: {error}. It is "
                        "tried again, and no message is received before it succeeds."
                    ) from error
                self._started += 1

    def stop(self) -> None:
        """Run the functions of the stop, the last one first, if all of the start have run. An error of one is logged,
        and does not keep the others.
        """
        if self._started is not None:
            return
        for function, name in reversed(self._at["stop"]):
            try:
                self._run(function, name)
            except Exception:
                logger.exception("%s at the stop of %s failed", name, self._endpoint)

    def _run(self, function: Callable[[], Any], name: str) -> None:
        if is_async(function):
            run(function, name=f"{name} of {self._endpoint}")
        else:
            function()
