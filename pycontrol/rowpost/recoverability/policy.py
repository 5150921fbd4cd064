"""Decide what happens to a message whose handler failed, and build the headers of its copy. All functions are pure.

`Recoverability` is the policy of an endpoint: retry at once, retry after a delay, or move to the error queue.
`failure_headers` and `delayed_headers` build the headers that NServiceBus writes and ServiceControl imports: all
headers of the message are kept, those that describe earlier retries and failures are removed, and those that describe
this failure are added.
"""

from __future__ import annotations

import socket
import traceback
import types
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property
from typing import NamedTuple, get_args

from rowpost.errors import (
    InvalidCorrelation,
    InvalidMessageId,
    InvalidSagaState,
    MessageNotDeserialized,
    NoHandler,
    SettingsError,
    Unrecoverable,
)
from rowpost.recoverability.discard import Discard
from rowpost.recoverability.error_headers import ErrorHeaders, changed
from rowpost.recoverability.stopping import STOP
from rowpost.settings.endpoint import HostSettings
from rowpost.settings.environment import Settings
from rowpost.settings.worker import FunctionRetries, Growth
from rowpost.wire.headers import (
    DELIVER_AT,
    EXCEPTION_DATA,
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
    START_NEW_TRACE,
    TIME_OF_FAILURE,
    TRACE_PARENT,
)
from rowpost.wire.message import format_timestamp, storable

__all__ = [
    "DROPPED",
    "Decision",
    "Failure",
    "Host",
    "MoveTo",
    "Policy",
    "Recoverability",
    "Treatment",
    "cut_stack",
    "delayed_headers",
    "delayed_rounds",
    "describe",
    "error_text",
    "error_type",
    "failure_headers",
    "in_words",
    "plain_recoverability",
]  # fmt: skip

MESSAGE_LIMIT = 16384
STACK_LIMIT = 32768
# Retries.Timestamp is kept: ServiceControl shows when the delayed retries began.
DROPPED = frozenset({RETRIES, IMMEDIATE_RETRIES})
ROUNDS_DIGITS = 9
#: delays double so often at most, for they are as long as they can be before
_MOST_DOUBLED = 60
#: what the delayed table can hold: 100 years
_LONGEST_DELAY = timedelta(days=36525)
#: the attribute of an error that holds its facts
_FACTS = "__rowpost_facts__"


class Decision(Enum):
    """What to do with a failed message."""

    RETRY = "retry"
    DELAY = "delay"
    ERROR = "error"
    DISCARD = "discard"


class MoveTo(NamedTuple):
    """A policy's wish to move a message to an error queue of its own. If there is no such queue, the endpoint's gets
    it.
    """

    queue: str


class Treatment(NamedTuple):
    """What to do with a failed message.

    Attributes:
        decision: what.
        delay: with DELAY: the time until the retry.
        error_queue: with ERROR: the queue; None for the endpoint's.
        discard: with DISCARD: why.
    """

    decision: Decision
    delay: timedelta = timedelta(0)
    error_queue: str | None = None
    discard: Discard | None = None


Policy = Callable[["Failure"], "Decision | timedelta | Discard | MoveTo"]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as a policy gets it.

    Attributes:
        error: what the handler raised.
        attempts: attempts since the message was last received from the delayed table, this one included.
        delayed: how many delayed retries came before.
        headers: the message's headers as it arrived.
    """

    error: BaseException
    attempts: int
    delayed: int
    headers: Mapping[str, str | None]

    @property
    def stopping(self) -> bool:
        """Whether the process is to stop, as `Context.stopping`."""
        return STOP.requested


@dataclass(frozen=True, slots=True)
class Recoverability:
    """How often and when a failing message is retried; the defaults are those of NServiceBus.

    A message is retried at once `immediate_retries` times. Then it is retried after `delay_increase`, after twice that
    time, and so on, `delayed_retries` times, each time with its immediate retries. Then it moves to the error queue.
    With the defaults, a handler is called 24 times.

    Attributes:
        immediate_retries: retries without a delay, in each round.
        delayed_retries: rounds after the first one.
        delay_increase: the first delay, and the difference to each further one.
        unrecoverable: errors that move the message to the error queue at once, as `Unrecoverable` always does.
        policy: decides instead of all that. It returns a `Decision`, the time after which to retry, a `Discard` with
            the reason for which the message is dropped, or `MoveTo` another error queue.
        backoff: "exponential" doubles each delay: `delay_increase`, twice, four times, and so on.
        longest_delay: no delay is longer; None for 100 years, which is the longest that can be stored.

    Raises:
        SettingsError: there is no such backoff.
    """

    immediate_retries: int = 5
    delayed_retries: int = 3
    delay_increase: timedelta = timedelta(seconds=10)
    unrecoverable: tuple[type[BaseException], ...] = (
        MessageNotDeserialized, NoHandler, InvalidMessageId, InvalidCorrelation, InvalidSagaState,
    )  # fmt: skip
    policy: Policy | None = None
    backoff: Growth = "linear"
    longest_delay: timedelta | None = None

    def __post_init__(self) -> None:
        if self.backoff not in get_args(Growth):
            raise SettingsError(f"There is no backoff {self.backoff!r:.40}. Use one of: {', '.join(get_args(Growth))}.")

    def decide(self, failure: Failure) -> Treatment:
        """Return what to do.

        >>> Recoverability().decide(Failure(ValueError(), 6, 1, {}))[:2]
        (<Decision.DELAY: 'delay'>, datetime.timedelta(seconds=20))
        >>> Recoverability(backoff="exponential").decide(Failure(ValueError(), 6, 2, {})).delay.total_seconds()
        40.0
        """
        if self.policy is not None:
            return _treatment(self.policy(failure))
        if isinstance(failure.error, (*self.unrecoverable, Unrecoverable)):
            return Treatment(Decision.ERROR)
        if failure.attempts <= self.immediate_retries:
            return Treatment(Decision.RETRY)
        if failure.delayed < self.delayed_retries:
            return Treatment(Decision.DELAY, self._delay(failure.delayed))
        return Treatment(Decision.ERROR)

    def _delay(self, rounds: int) -> timedelta:
        """Return the delay after so many delayed retries."""
        longest = _LONGEST_DELAY if self.longest_delay is None else min(self.longest_delay, _LONGEST_DELAY)
        times = rounds + 1 if self.backoff == "linear" else 2 ** min(rounds, _MOST_DOUBLED)
        try:
            return min(self.delay_increase * times, longest)
        except OverflowError:
            return longest


def _treatment(decided: object) -> Treatment:
    """Return what a policy means.

    Raises:
        TypeError: it has returned something else.
        ValueError: it discards without a reason.
    """
    match decided:
        case Decision.DISCARD:
            raise ValueError("a policy that discards a message returns Discard(reason)")
        case Decision():
            return Treatment(decided)
        case timedelta():
            return Treatment(Decision.DELAY, min(decided, _LONGEST_DELAY))
        case MoveTo(queue):
            return Treatment(Decision.ERROR, error_queue=queue)
        case Discard():
            return Treatment(Decision.DISCARD, discard=decided)
    raise TypeError(f"a policy returns a Decision, a timedelta, a Discard or a MoveTo, and not {decided!r:.60}")


@dataclass(frozen=True)
class Host:
    """The endpoint (the queue's name) and the machine that processed a message, what the environment calls this host,
    and what the endpoint does to the headers of its messages in the error queue.
    """

    endpoint: str
    machine: str
    named: HostSettings = field(default_factory=HostSettings)
    error_headers: ErrorHeaders | None = None

    @classmethod
    def here(cls, endpoint: str, named: HostSettings | None = None, error_headers: ErrorHeaders | None = None) -> Host:
        """Return the host of an endpoint on this machine."""
        return cls(endpoint, socket.gethostname(), named or HostSettings(), error_headers)

    @classmethod
    def of_queue(cls, queue: str, settings: Settings) -> Host:
        """Return the host of the endpoint that receives from a queue on this machine."""
        return cls.here(settings.endpoint_name(queue), settings.host_of(queue))

    @property
    def display_name(self) -> str:
        """How people see the host: the name in the settings, or that of the machine."""
        return self.named.name or self.machine

    @cached_property
    def id(self) -> str:
        """32 hexadecimal digits, which ServiceControl parses as a GUID.

        The same endpoint on the same host has the same id.

        >>> Host("Billing", "APP02").id == Host("Billing", "APP02").id, len(Host("Billing", "APP02").id)
        (True, 32)
        """
        return self.named.id or uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.display_name}/{self.endpoint}").hex


def plain_recoverability(retries: FunctionRetries | None) -> Recoverability:
    """Return the policy of a plain function: these retries, then the error queue, whatever the error. None: the usual
    ones.
    """
    asked = retries or FunctionRetries()
    return Recoverability(
        immediate_retries=asked.attempts - 1,
        delayed_retries=asked.delayed_retries,
        delay_increase=timedelta(seconds=asked.delay_increase),
        unrecoverable=(),
        backoff=asked.backoff,
        longest_delay=timedelta(seconds=asked.longest_delay) if asked.longest_delay else None,
    )


def delayed_rounds(headers: Mapping[str, str | None]) -> int:
    """Return how many delayed retries a message had, from its header NServiceBus.Retries.

    A header that is missing, is not a number, or has more than nine digits counts as 0. Any sender may write any
    header, and Python refuses to convert thousands of digits.

    >>> delayed_rounds({"NServiceBus.Retries": "2"}), delayed_rounds({"NServiceBus.Retries": "9" * 5000})
    (2, 0)
    """
    text = headers.get(RETRIES) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= ROUNDS_DIGITS else 0


def delayed_headers(
    headers: Mapping[str, str | None], round_: int, now: datetime, delay: timedelta, message_id: str
) -> dict[str, str | None]:
    """Return the headers of a delayed retry.

    DeliverAt is the time of this retry. The timestamp remains that of the first retry, so that operators see since when
    the message has been failing. (The transport of NServiceBus overwrites the timestamp instead.)

    Args:
        headers: the message's headers as it arrived.
        round_: the number of this retry, from 1.
        now: the current time in UTC.
        delay: the time until the retry.
        message_id: is used if the header with the message's id is missing.
    """
    kept = storable(headers)
    if not kept.get(MESSAGE_ID):
        kept[MESSAGE_ID] = message_id
    kept.setdefault(RETRIES_TIMESTAMP, format_timestamp(now))
    return {**kept, **_new_trace(kept), RETRIES: str(round_), DELIVER_AT: format_timestamp(now + delay)}


def failure_headers(
    headers: Mapping[str, str | None],
    error: BaseException,
    *,
    queue: str,
    host: Host,
    at: datetime,
    message_id: str,
) -> dict[str, str | None]:
    """Return the headers of the copy in the error queue: those of the message, and what failed, where and when.

    Args:
        headers: the message's headers as it arrived.
        error: what the handler raised.
        queue: the canonical address of the queue in which the message failed. It replaces an older header FailedQ.
        host: the endpoint and machine that handled the message.
        at: the time of the failure in UTC.
        message_id: is used if the header with the message's id is missing.
    """
    kept = {
        name: value
        for name, value in storable(headers).items()
        if name not in DROPPED and not name.startswith(EXCEPTION_INFO)
    }
    if not kept.get(MESSAGE_ID):
        kept[MESSAGE_ID] = message_id
    headers = {
        **kept,
        **_new_trace(kept),
        FAILED_QUEUE: queue,
        TIME_OF_FAILURE: format_timestamp(at),
        **_exception_headers(error),
        PROCESSING_MACHINE: host.machine,
        PROCESSING_ENDPOINT: host.endpoint,
        HOST_ID: host.id,
        HOST_DISPLAY_NAME: host.display_name,
    }
    return headers if host.error_headers is None else changed(host.error_headers, headers, error)


def _new_trace(headers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the header with which a later attempt starts a trace: it may come hours after the send, and links to
    it.
    """
    return {START_NEW_TRACE: "True"} if TRACE_PARENT in headers else {}


def describe(error: BaseException, facts: Mapping[str, str]) -> None:
    """Add facts to an error. The copy in the error queue has each as a header `ExceptionInfo.Data.<name>`.

    Args:
        error: what a handler raised.
        facts: texts by name; a fact of the same name is replaced.
    """
    with suppress(Exception):  # a user's class may refuse attributes; the copy is more important
        setattr(error, _FACTS, {**_facts(error), **facts})


def _facts(error: BaseException) -> dict[str, str]:
    """Return the facts of an error.

    A user's class may answer for any attribute, so only what `describe` has set counts.
    """
    facts: dict[str, str] = getattr(error, "__dict__", {}).get(_FACTS, {})
    return facts


def _exception_headers(error: BaseException) -> dict[str, str | None]:
    inner = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    found = {
        "ExceptionType": error_type(error),
        "InnerExceptionType": None if inner is None else error_type(inner),
        "Message": error_text(error)[:MESSAGE_LIMIT],
        "Source": _source(error),
        "StackTrace": cut_stack("".join(traceback.format_exception(type(error), error, _without_own_frames(error)))),
    }
    facts = {f"{EXCEPTION_DATA}.{name}": text for name, text in _facts(error).items()}
    return storable({**{EXCEPTION_INFO + name: value for name, value in found.items() if value is not None}, **facts})


def _without_own_frames(error: BaseException) -> types.TracebackType | None:
    """Return the traceback from the handler on; the whole one if rowpost itself has raised the error."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("rowpost."):
        trace = trace.tb_next
    return trace or error.__traceback__


def error_type(error: BaseException) -> str:
    """Return the name of an error's class with its module."""
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}"


def in_words(error: BaseException) -> str:
    """Return the type and the text of an error."""
    return f"{type(error).__name__}: {error_text(error)}"


def error_text(error: BaseException) -> str:
    """Return the text of an error. If its class cannot make one, the text says so."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 a user's __str__ must not prevent the move to the error queue
        return f"(the exception has no text: {type(broken).__name__})"


def _source(error: BaseException) -> str:
    """Return the module in which the error was raised; the exception's own module if there is no traceback."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return str(frames[-1].f_globals.get("__name__", "")) if frames else type(error).__module__


def cut_stack(text: str) -> str:
    """Return the start and the end of a stack, three times as much of the end, because the last frames say most."""
    if len(text) <= STACK_LIMIT:
        return text
    gap = "\n... cut ...\n"
    head = (STACK_LIMIT - len(gap)) // 4
    return text[:head] + gap + text[-(STACK_LIMIT - len(gap) - head) :]
