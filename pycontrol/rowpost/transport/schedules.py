"""Send the messages of schedules when they are due, each once.

    for seen in watch(database, "Reports"):
        ticked = tick(database, "Reports", seen, make, send)

A schedule is a row of `rowpost.schedule`, which holds up to when its ticks are done. `step` decides from such a row
which ticks are sent now; it performs no I/O. `tick` compares the row with what was seen and moves it on, in the
transaction that sends the messages. So a tick is sent once by however many processes look. If one dies, the next one
sends what it has not committed. The server's clock decides what is due: `watch` returns its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, cast
from uuid import UUID, uuid5

from rowpost.database.connection import Connection
from rowpost.errors import InvalidSchedule
from rowpost.settings.due_times import EPOCH, DueTimes, Missed
from rowpost.wire.outgoing import Outgoing

__all__ = ["BATCH", "Make", "SeenSchedule", "Send", "Step", "Ticked", "message_id", "step", "tick", "watch"]

#: ticks of a schedule that commit together, with `missed: all`
BATCH = 100
#: with `missed: skip`, a tick that nobody sent within this time is not sent any more
SKIPPED_AFTER = timedelta(minutes=1)

_NAMESPACE = UUID("5f0f3c53-6a0e-5f3c-9d2e-7d0a4c3a1b52")
_MILLISECOND = timedelta(milliseconds=1)

#: makes the messages of a tick from its due time and the message id; none if the tick needs no message
Make = Callable[[datetime, str], Sequence[Outgoing]]
#: sends what ticks caused, a group for each, in the open transaction
Send = Callable[[list[list[Outgoing]]], None]


@dataclass(frozen=True)
class SeenSchedule:
    """A schedule as the database has it. Times are in UTC.

    Attributes:
        name: its name.
        due: when it is due.
        missed: what becomes of ticks that nobody sent in time.
        ticked_to: all ticks up to this time are done.
        next_due: the next tick after that, as stored; None: nobody has stored it yet, or there is none.
        requested_at: when an operator requested a tick for now; None: nobody has, or it is sent.
        is_paused: whether no tick is sent.
        now: the server's time.
    """

    name: str
    due: DueTimes
    missed: Missed
    ticked_to: datetime
    next_due: datetime | None
    requested_at: datetime | None
    is_paused: bool
    now: datetime


@dataclass(frozen=True)
class Step:
    """How a schedule moves on.

    Attributes:
        ticked_to: up to when its ticks are done then.
        next_due: the next tick after that.
        ticks: the ticks that are sent.
    """

    ticked_to: datetime
    next_due: datetime | None
    ticks: tuple[datetime, ...] = ()


@dataclass(frozen=True)
class Ticked:
    """What `tick` did.

    Attributes:
        sent: messages that were sent.
        wait: seconds until the schedule needs another call; None if nothing is due.
    """

    sent: int = 0
    wait: float | None = None


def _raise(name: str, error: InvalidSchedule) -> None:
    raise error


def watch(
    database: Connection, queue: str, broken: Callable[[str, InvalidSchedule], None] = _raise
) -> list[SeenSchedule]:
    """Return the schedules whose messages the supervisors of a queue send.

    Args:
        database: the connection.
        queue: the queue's name.
        broken: is called with the name of a schedule whose due times cannot be computed here, which is skipped. By
            default it raises the error.

    Raises:
        QueueNotFound: the queue is not registered.
        QueueNotGranted: the login may not receive from it.
        FeatureMissing: schedules are not deployed.
        InvalidSchedule: this machine does not know the time zone of a schedule, and `broken` is not given.
    """
    found = []
    for row in database.call("watch_schedules", queue_name=queue):
        try:
            due = _due_times(row.cron, row.interval_ms, row.zone)
        except InvalidSchedule as error:
            broken(row.schedule_name, error)
            continue
        found.append(
            SeenSchedule(
                row.schedule_name,
                due,
                cast("Missed", row.missed),
                _utc(row.ticked_to),
                None if row.next_due is None else _utc(row.next_due),
                None if row.requested_at is None else _utc(row.requested_at),
                row.is_paused,
                _utc(row.measured_at),
            )
        )
    return found


@lru_cache(maxsize=1024)
def _due_times(cron: str | None, interval_ms: int | None, zone: str) -> DueTimes:
    """Return due times, which are checked once and not with each look."""
    return DueTimes(cron, None if interval_ms is None else interval_ms * _MILLISECOND, zone)


def step(seen: SeenSchedule) -> Step:
    """Decide which ticks of a schedule are sent now.

    >>> at = lambda hour, minute=0: datetime(2026, 1, 1, hour, minute, tzinfo=UTC)
    >>> hourly = DueTimes("0 * * * *")
    >>> seen = lambda missed: SeenSchedule("hourly", hourly, missed, at(1), at(2), None, False, at(4, 30))
    >>> [[tick.hour for tick in step(seen(missed)).ticks] for missed in ("skip", "once", "all")]
    [[], [4], [2, 3, 4]]
    >>> step(seen("skip")).next_due.hour
    5
    """
    if seen.missed == "all":
        ticks = seen.due.first(seen.ticked_to, seen.now, BATCH)
        to = ticks[-1] if ticks else None
    else:
        to = seen.due.latest(seen.ticked_to, seen.now)
        late = to is not None and seen.missed == "skip" and seen.now - to > SKIPPED_AFTER
        ticks = () if to is None or late else (to,)
    if to is None:
        return Step(seen.ticked_to, seen.due.after(seen.ticked_to))
    return Step(to, seen.due.after(to), ticks)


def message_id(name: str, due: datetime, *, requested: bool = False) -> str:
    """Return the message id of a tick. It follows from the schedule's name and the due time.

    >>> message_id("nightly", datetime(2026, 1, 1, 2, tzinfo=UTC))
    '2ef4568b-1e43-57f2-812e-423d6d4c8ae2'
    """
    return str(uuid5(_NAMESPACE, f"{name}\n{due.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z{' requested' * requested}"))


def tick(database: Connection, queue: str, seen: SeenSchedule, make: Make, send: Send) -> Ticked:
    """Send the messages of one schedule that are due, and move it on, in one transaction.

    Args:
        database: the connection. No transaction is open.
        queue: the queue whose supervisors send the messages.
        seen: the schedule, as `watch` has just returned it.
        make: is called before the transaction, once for each tick.
        send: is called in the transaction.

    Returns:
        What was done. Nothing, if another session moves the schedule on, or an operator has paused it since.

    Raises:
        RowpostError: the messages cannot be sent. Nothing was changed.
        Exception: whatever `make` raises. Nothing was changed.
    """
    if seen.requested_at is not None:
        outgoing = [list(make(seen.requested_at, message_id(seen.name, seen.requested_at, requested=True)))]
        taken = {"requested_at_ms": _ms(seen.requested_at)}
        sent = _send(database, "take_requested_tick", queue, seen, taken, outgoing, send)
        return Ticked(sent, 0.0)
    if seen.is_paused:
        return Ticked()
    if seen.next_due is not None and seen.next_due > seen.now:
        return Ticked(0, _until(seen.next_due, seen.now))
    made = step(seen)
    if made.ticked_to == seen.ticked_to and made.next_due == seen.next_due:  # nothing is due, now or ever
        return Ticked()
    outgoing = [list(make(due, message_id(seen.name, due))) for due in made.ticks]
    moved: dict[str, Any] = {"seen_ms": _ms(seen.ticked_to), "ticked_to_ms": _ms(made.ticked_to)}
    if made.next_due is not None:
        moved["next_due_ms"] = _ms(made.next_due)
    if made.ticks:
        moved["sent_due_ms"] = _ms(made.ticks[-1])
    sent = _send(database, "advance_schedule", queue, seen, moved, outgoing, send)
    return Ticked(sent, None if made.next_due is None else _until(made.next_due, seen.now))


def _send(
    database: Connection,
    procedure: str,
    queue: str,
    seen: SeenSchedule,
    arguments: dict[str, Any],
    outgoing: list[list[Outgoing]],
    send: Send,
) -> int:
    """Move a schedule on and send in one transaction, if nobody else has. Return the number of messages."""
    with database.transaction():
        ((done,),) = database.call(procedure, queue_name=queue, schedule_name=seen.name, **arguments)
        if not done:
            return 0
        groups = [group for group in outgoing if group]
        if groups:
            send(groups)
        return len(groups)


def _until(due: datetime, now: datetime) -> float:
    return max(0.0, (due - now).total_seconds())


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def _ms(moment: datetime) -> int:
    return (moment - EPOCH) // _MILLISECOND
