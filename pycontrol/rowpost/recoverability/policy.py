"""What becomes of a message whose handler failed: try again, or move to the error queue. Pure.

The headers are those that ServiceControl imports and NServiceBus writes (reference I4, 2.4 and 2.5): everything the
message had is kept, what described earlier retries and failures is taken away, what describes this failure is added.
"""

from __future__ import annotations

import socket
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property

from rowpost.errors import InvalidCorrelation, InvalidMessageId, InvalidSagaState, MessageNotDeserialized, NoHandler
from rowpost.wire.headers import (
    DELIVER_AT,
    EXCEPTION_INFO,
    FAILED_QUEUE,
    HOST_DISPLAY_NAME,
    HOST_ID,
    IMMEDIATE_RETRIES,
    MESSAGE_ID,
    PROCESSING_ENDPOINT,
    PROCESSING_MACHINE,
    RETRIES,
    RETRIES_TIMESTAMP,
    TIME_OF_FAILURE,
)
from rowpost.wire.message import format_timestamp, storable

__all__ = [
    "DROPPED",
    "Decision",
    "Failure",
    "Host",
    "Policy",
    "Recoverability",
    "delayed_headers",
    "delayed_rounds",
    "failure_headers",
    "in_words",
    "plain_recoverability",
]

MESSAGE_LIMIT = 16384
STACK_LIMIT = 32768
# Retries.Timestamp stays: ServiceControl shows when the delayed retries began.
DROPPED = frozenset({RETRIES, IMMEDIATE_RETRIES})
ROUNDS_DIGITS = 9


class Decision(Enum):
    """What to do with a failed message."""

    RETRY = "retry"
    DELAY = "delay"
    ERROR = "error"


Policy = Callable[["Failure"], "Decision | timedelta"]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as a policy sees it.

    `attempts` are the attempts of this round with this one, `delayed` the rounds before it.
    """

    error: BaseException
    attempts: int
    delayed: int
    headers: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Recoverability:
    """How often and when a failing message is tried again (reference I1 to I3).

    At once, `immediate_retries` times; then again after `delay_increase`, twice it, three times it, …,
    `delayed_retries` rounds; then it moves to the error queue. With the defaults a handler is called 24 times.

    `unrecoverable` errors go to the error queue at once. A `policy` decides instead of all that: it returns a Decision,
    or the time after which to try again.
    """

    immediate_retries: int = 5
    delayed_retries: int = 3
    delay_increase: timedelta = timedelta(seconds=10)
    unrecoverable: tuple[type[BaseException], ...] = (
        MessageNotDeserialized, NoHandler, InvalidMessageId, InvalidCorrelation, InvalidSagaState,
    )  # fmt: skip
    policy: Policy | None = None

    def decide(self, failure: Failure) -> tuple[Decision, timedelta]:
        """What to do, and after which time where it is to be tried again later.

        >>> Recoverability().decide(Failure(ValueError(), 6, 1, {}))
        (<Decision.DELAY: 'delay'>, datetime.timedelta(seconds=20))
        """
        nothing = timedelta(0)
        if self.policy is not None:
            decided = self.policy(failure)
            return (Decision.DELAY, decided) if isinstance(decided, timedelta) else (decided, nothing)
        if isinstance(failure.error, self.unrecoverable):
            return Decision.ERROR, nothing
        if failure.attempts <= self.immediate_retries:
            return Decision.RETRY, nothing
        if failure.delayed < self.delayed_retries:
            return Decision.DELAY, self.delay_increase * (failure.delayed + 1)
        return Decision.ERROR, nothing


@dataclass(frozen=True)
class Host:
    """Who processed the message: endpoint (the queue's name) and machine."""

    endpoint: str
    machine: str

    @classmethod
    def here(cls, endpoint: str) -> Host:
        """This machine."""
        return cls(endpoint, socket.gethostname())

    @cached_property
    def id(self) -> str:
        """32 hexadecimal digits, the same for the same endpoint on the same machine: ServiceControl parses a GUID.

        >>> Host("Billing", "APP02").id == Host("Billing", "APP02").id, len(Host("Billing", "APP02").id)
        (True, 32)
        """
        return uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.machine}/{self.endpoint}").hex


def plain_recoverability(attempts: int) -> Recoverability:
    """`attempts` tries at once, then the error queue, whatever the error: how plain functions are treated."""
    return Recoverability(immediate_retries=attempts - 1, delayed_retries=0, unrecoverable=())


def delayed_rounds(headers: Mapping[str, str | None]) -> int:
    """Return how many delayed retries a message has behind it, from its header NServiceBus.Retries.

    A header that is missing, is not a number, or has more than nine digits counts as 0. Anybody may send any header, and
    Python refuses to convert thousands of digits.

    >>> delayed_rounds({"NServiceBus.Retries": "2"}), delayed_rounds({"NServiceBus.Retries": "9" * 5000})
    (2, 0)
    """
    text = headers.get(RETRIES) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= ROUNDS_DIGITS else 0


def delayed_headers(
    headers: Mapping[str, str | None], round_: int, now: datetime, delay: timedelta, message_id: str
) -> dict[str, str | None]:
    """The headers of a delayed retry (reference 2.4).

    Other than the reference's (5.1), DeliverAt is that of this round, and the timestamp stays that of the first, so that
    whoever looks can tell since when a message has been failing.
    """
    kept = storable(headers)
    if not kept.get(MESSAGE_ID):
        kept[MESSAGE_ID] = message_id
    kept.setdefault(RETRIES_TIMESTAMP, format_timestamp(now))
    return {**kept, RETRIES: str(round_), DELIVER_AT: format_timestamp(now + delay)}


def failure_headers(
    headers: Mapping[str, str | None],
    error: BaseException,
    *,
    queue: str,
    host: Host,
    at: datetime,
    message_id: str,
) -> dict[str, str | None]:
    """The headers of the copy in the error queue: all of the message's own, and what failed, where and when.

    `queue` is the address that failed (FailedQ, replacing an older one), `at` the time of failure in UTC,
    `message_id` stands in where the header is missing.
    """
    kept = {
        name: value
        for name, value in storable(headers).items()
        if name not in DROPPED and not name.startswith(EXCEPTION_INFO)
    }
    if not kept.get(MESSAGE_ID):
        kept[MESSAGE_ID] = message_id
    return {
        **kept,
        FAILED_QUEUE: queue,
        TIME_OF_FAILURE: format_timestamp(at),
        **_exception_headers(error),
        PROCESSING_MACHINE: host.machine,
        PROCESSING_ENDPOINT: host.endpoint,
        HOST_ID: host.id,
        HOST_DISPLAY_NAME: host.machine,
    }


def _exception_headers(error: BaseException) -> dict[str, str]:
    inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    found = {
        "ExceptionType": _type_name(error),
        "InnerExceptionType": None if inner is None else _type_name(inner),
        "Message": _text(error)[:MESSAGE_LIMIT],
        "Source": _source(error),
        "StackTrace": _cut_middle("".join(traceback.format_exception(error)), STACK_LIMIT),
    }
    return storable({EXCEPTION_INFO + name: value for name, value in found.items() if value is not None})


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}"


def in_words(error: BaseException) -> str:
    """Return the type and the text of an error."""
    return f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 a user's __str__ must not keep the message from the error queue
        return f"(the exception's text cannot be had: {type(broken).__name__})"


def _source(error: BaseException) -> str:
    """Module in which the error was raised; the exception's own where there is no traceback."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__", "")) if frames else type(error).__module__


def _cut_middle(text: str, limit: int) -> str:
    """The beginning and, more of it, the end: the last frames say most."""
    if len(text) <= limit:
        return text
    gap = "\n... cut ...\n"
    head = (limit - len(gap)) // 4
    return text[:head] + gap + text[-(limit - len(gap) - head) :]
