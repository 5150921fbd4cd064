"""Schedules that an endpoint declares: functions that make the message of a due time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, get_args, get_type_hints

from rowpost.errors import InvalidMessage, InvalidSchedule, SettingsError
from rowpost.handling.handlers import check_runs, name_of
from rowpost.settings.due_times import MISSED, DueTimes, Missed
from rowpost.settings.schedule import LONGEST_NAME
from rowpost.wire.message_types import check_kind, named_types

__all__ = ["MakeMessage", "Schedule", "due_times", "schedule_of"]

#: called with the due time, in UTC; returns the message, or None for none
MakeMessage = Callable[[datetime], Any]


@dataclass(frozen=True)
class Schedule:
    """One schedule of an endpoint.

    Attributes:
        name: identifies it in the database.
        message: the class of the messages.
        due: when it is due.
        missed: what becomes of ticks that nobody sent in time.
        to: the destination, as it was written; None: the endpoint's own queue.
        function: see MakeMessage.
    """

    name: str
    message: type
    due: DueTimes
    missed: Missed
    to: str | None
    function: MakeMessage

    def make(self, due: datetime) -> Any:
        """Return the message of a due time, or None for none.

        Raises:
            InvalidMessage: the function raises an error, or returns another class than it declares.
        """
        try:
            message = self.function(due)
        except Exception as error:
            raise InvalidMessage(
                f"The schedule {self.name} sent nothing for {due:%Y-%m-%d %H:%M:%S} UTC: {name_of(self.function)} "
                f"raised {type(error).__name__}: {error}"
            ) from error
        if message is not None and not isinstance(message, self.message):
            raise InvalidMessage(
                f"The schedule {self.name} sent nothing for {due:%Y-%m-%d %H:%M:%S} UTC: {name_of(self.function)} "
                f"returned a {type(message).__name__}, and declares {self.message.__name__}."
            )
        return message


def due_times(due: str | timedelta, zone: str, what: str) -> DueTimes:
    """Return the due times of a cron expression or an interval. Raises SettingsError, which begins with `what`."""
    try:
        if isinstance(due, timedelta):
            return DueTimes(interval=due, zone=zone)
        return DueTimes(" ".join(due.split()), zone=zone)
    except (InvalidSchedule, AttributeError) as error:
        said = error if isinstance(error, InvalidSchedule) else f"{due!r} is neither a cron expression nor a timedelta."
        raise SettingsError(f"{what}: {said}") from error


def schedule_of(
    endpoint: str, function: MakeMessage, name: str | None, due: DueTimes, missed: Missed, to: str | None
) -> Schedule:
    """Return the schedule that a function declares.

    Args:
        endpoint: the endpoint's name, with which the schedule's name begins if it has none of its own.
        function: see MakeMessage.
        name: the schedule's name; None for the endpoint's and the function's.
        due: when it is due.
        missed: what becomes of ticks that nobody sent in time.
        to: the destination.

    Raises:
        SettingsError: the function takes other arguments, is async or a generator, or does not say what it returns; the
            messages cannot be sent; `missed` or the name is none.
    """
    what = f"The schedule {name_of(function)} of {endpoint}"
    check_runs(function, SettingsError, what, takes=("due",))
    if missed not in MISSED:
        raise SettingsError(f"{what} has missed={missed!r}. Write one of {', '.join(MISSED)}.")
    named = name or f"{endpoint}.{getattr(function, '__name__', '')}"
    if len(named) > LONGEST_NAME:
        raise SettingsError(f"{what} has a name of more than {LONGEST_NAME} characters. Give it another: name='…'.")
    return Schedule(named, _message_of(function, what), due, missed, to, function)


def _message_of(function: MakeMessage, what: str) -> type:
    """Return the class that a function says it returns. Raises SettingsError."""
    try:
        hint = get_type_hints(function).get("return")
    except (NameError, TypeError) as error:
        raise SettingsError(
            f"{what} does not say which message it makes: {error}. Import the class above it."
        ) from error
    kinds = [each for each in get_args(hint) or (hint,) if each is not NoneType]
    if len(kinds) != 1 or not isinstance(kinds[0], type):
        raise SettingsError(
            f"{what} does not say which message it makes. Declare the class that it returns: def …(due: datetime) -> "
            "MakeReport."
        )
    try:
        named_types(kinds[0])
    except InvalidMessage as error:
        raise SettingsError(f"{what}: {error}") from error
    check_kind(kinds[0], "Send", SettingsError)
    return kinds[0]
