"""Checks that an endpoint declares: functions that say what is wrong, for ServiceControl."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

__all__ = ["OWN_NAMES", "CheckFunction", "CustomCheck"]

#: the checks that rowpost brings for each queue
OWN_NAMES = ("Schema", "Clock", "Oldest message")

#: returns None if all is well, else what is wrong
CheckFunction = Callable[[], str | None]


@dataclass(frozen=True)
class CustomCheck:
    """One check of an endpoint.

    Attributes:
        name: identifies it among the checks of all endpoints.
        category: under which ServicePulse shows it.
        every: the time between two executions; None executes it once, when the supervisor starts.
        function: see CheckFunction.
    """

    name: str
    category: str
    every: timedelta | None
    function: CheckFunction

    def failure(self) -> str | None:
        """Execute the check.

        Return what is wrong: what it returned, or the error that it raised; None if all is well.
        """
        try:
            found = self.function()
        except Exception as error:  # noqa: BLE001 -- a user's function; that it fails is a result
            return f"{type(error).__name__}: {error}"
        if found is None or isinstance(found, str):
            return found or None
        return (
            f"The check returned a {type(found).__name__}. It must return None if all is well, or else what is wrong "
            "as a text."
        )
