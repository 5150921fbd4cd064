"""Compute how many workers a queue needs. Pure decisions: no clock, no I/O.

There are three strategies behind one interface, `Strategy`. A strategy is a frozen value. `after(observation, limit)`
returns the next value, and its `workers` is the target number of workers.

    FixedStrategy      `limit` pollers that poll all the time, as NServiceBus SQL Server transport 1.x and 2.0 do
    AdaptiveStrategy   receives that succeed in a row start a poller, empty ones in a row stop one, as transport 2.1 does
    PeekStrategy       one monitor peeks; after a peek that found messages, workers receive until one of them finds nothing, as
                       transport 3 and later do

The numbers are those of the Particular documentation, "SQL Server transport design"
(https://docs.particular.net/transports/sql/design).

>>> idle = PeekStrategy()
>>> burst = idle.after(PeekCounted(1000), limit=4)
>>> burst.workers, burst.after(Received(1, (46, -1)), limit=4).peek_in
(4, 0.0)
"""  # noqa: E501

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rowpost.errors import SettingsError

__all__ = [
    "LONG_RECEIVE_S",
    "AdaptiveStrategy",
    "FixedStrategy",
    "Observation",
    "PeekCounted",
    "PeekStrategy",
    "Received",
    "StillBusy",
    "Strategy",
    "WokenUp",
    "check_peek_delay",
    "make_strategy",
    "poll_pause",
    "spare_workers",
]

# Transport 2.1: more than ENOUGH_HITS receives with a message in a row start a poller; ENOUGH_MISSES empty ones stop
# one.
ENOUGH_HITS = 5
ENOUGH_MISSES = 7
# Transport 2.1: a worker that is busy longer with one message starts one more poller, once per message.
LONG_RECEIVE_S = 5.0
# Pause of a poller that found nothing: doubled from the first value to the second.
MIN_POLL_PAUSE_S = 0.05
MAX_POLL_PAUSE_S = 1.0
# After work, the monitor pauses so long between so many peeks; a slow peek is followed by a longer pause.
QUICK_PEEK_S = 0.005
QUICK_PEEKS = 7
# The pause after them; it doubles at each peek up to the peek delay.
LONGER_PAUSE_S = 0.04
# From this peek on, the monitor requests wake-ups: senders of a steady flow do not notify, and those of a trickle do.
# Quick peeks follow the request. They find what was stored before it and committed after it.
WAKE_UP_AFTER_PEEKS = 1
# Transport 3 and later recommend this range for the peek delay.
MIN_PEEK_DELAY_S = 0.1
RECOMMENDED_PEEK_DELAY_S = 10.0


@dataclass(frozen=True, slots=True)
class PeekCounted:
    """A peek counted `count` messages while `busy` workers were receiving, `without_message` of them with none in
    flight.
    """

    count: int
    busy: int = 0
    without_message: int = 0


@dataclass(frozen=True, slots=True)
class WokenUp:
    """A sender has committed messages while `busy` workers were receiving."""

    busy: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """The receives of one worker in order: +n for n messages in a row, -n for n empty receives in a row."""

    poller: int
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StillBusy:
    """One worker has handled the same message for `seconds`."""

    poller: int
    seconds: float


Observation = PeekCounted | Received | WokenUp | StillBusy


@dataclass(frozen=True, slots=True)
class Strategy(ABC):
    """What a worker pool needs of a concurrency strategy.

    Attributes:
        peek_delay: seconds between two peeks of an idle queue.
        workers: the target number of workers.
        peek_in: seconds until the next peek; None keeps the time that was set before.
        stop: number of the worker that has to exit by the last decision, or None.
        polls: whether workers poll on their own; if not, they wait for commands to receive.
        receiving: whether workers were commanded to receive and no receive was empty yet; False if workers poll.
        wants_wake_up: whether the monitor requests wake-ups from senders.
    """

    peek_delay: float = 1.0
    workers: int = 1
    peek_in: float | None = 0.0
    stop: int | None = None
    polls: ClassVar[bool] = True

    @property
    def receiving(self) -> bool:
        return False

    @property
    def wants_wake_up(self) -> bool:
        return False

    @abstractmethod
    def after(self, observation: Observation, limit: int) -> Strategy:
        """Return the state after an observation, with at most `limit` workers."""


@dataclass(frozen=True, slots=True)
class FixedStrategy(Strategy):
    """A fixed number of pollers, as transports 1.x and 2.0 have."""

    def after(self, observation: Observation, limit: int) -> FixedStrategy:
        """Return the limit as the target for every observation; peeks only supply the depth for displays."""
        return replace(self, workers=limit, peek_in=self.peek_delay if isinstance(observation, PeekCounted) else None)


@dataclass(frozen=True, slots=True)
class _Counters:
    hits: int = 0
    misses: int = 0
    boosted: bool = False


@dataclass(frozen=True, slots=True)
class AdaptiveStrategy(Strategy):
    """Pollers that count their own receives, as those of transport 2.1.

    A hit is a receive with a message, a miss an empty one. A hit resets the misses, and a miss resets the hits. More
    than five hits in a row start a poller and are reset. Seven misses in a row stop the poller that had them, unless it
    is the last one.
    """

    counters: Mapping[int, _Counters] = field(default_factory=dict)

    def after(self, observation: Observation, limit: int) -> AdaptiveStrategy:
        """Return one poller more or one less, depending on a poller's receives."""
        here = replace(self, workers=max(1, min(self.workers, limit)), peek_in=None, stop=None)
        match observation:
            case PeekCounted():
                return replace(here, peek_in=self.peek_delay)
            case StillBusy(poller, seconds):
                return here._boosted(poller, seconds, limit)
            case Received(poller, runs):
                for run in runs:
                    here = here._hits(poller, run, limit) if run > 0 else here._misses(poller, -run)
        return here

    def _boosted(self, poller: int, seconds: float, limit: int) -> AdaptiveStrategy:
        counters = self.counters.get(poller, _Counters())
        if seconds <= LONG_RECEIVE_S or counters.boosted:
            return self
        return replace(
            self,
            workers=min(limit, self.workers + 1),
            counters={**self.counters, poller: replace(counters, boosted=True)},
        )

    def _hits(self, poller: int, count: int, limit: int) -> AdaptiveStrategy:
        started, hits = divmod(self.counters.get(poller, _Counters()).hits + count, ENOUGH_HITS + 1)
        return replace(
            self,
            workers=max(1, min(limit, self.workers + started)),
            counters={**self.counters, poller: _Counters(hits=hits)},
        )

    def _misses(self, poller: int, count: int) -> AdaptiveStrategy:
        misses = self.counters.get(poller, _Counters()).misses + count
        if misses < ENOUGH_MISSES:
            return replace(self, counters={**self.counters, poller: _Counters(misses=misses)})
        others = {key: value for key, value in self.counters.items() if key != poller}
        if self.workers == 1:
            return replace(self, counters=others)
        return replace(self, workers=self.workers - 1, stop=poller, counters=others)


@dataclass(frozen=True, slots=True)
class PeekStrategy(Strategy):
    """Peek mode and receive mode, as transport 3 and later have; one monitor per queue.

    A peek that finds n messages starts a round: up to min(limit, n) workers receive, in addition to those already busy.
    The round ends with the first receive that finds nothing, or when the n messages are taken while more workers are
    allowed. Then the next peek follows at once.

    If the queue is idle, the next peek follows after `peek_delay`. After work, and while workers can be added, seven
    pauses are 5 ms long; the next is 40 ms, and then they double. So a message that commits late is found within 5 ms,
    or within about twice the duration of its transaction.

    Two or more rounds in a row without a message back off, so that a wrong estimate never makes the monitor spin.
    """

    waiting: int = 0
    hits: int = 0
    empty_rounds: int = 0
    #: peeks since work, by which the next pause is chosen; None: it is the peek delay
    peeks: int | None = None
    polls: ClassVar[bool] = False

    @property
    def receiving(self) -> bool:
        """Whether a round is open (receive mode)."""
        return self.waiting > 0

    @property
    def wants_wake_up(self) -> bool:
        """Whether the monitor has found nothing for long enough to request wake-ups."""
        return not self.receiving and (self.peeks is None or self.peeks >= WAKE_UP_AFTER_PEEKS)

    def after(self, observation: Observation, limit: int) -> PeekStrategy:
        """Return the state after a change between peek mode and receive mode."""
        match observation:
            case PeekCounted():
                return self._peeked(observation, limit)
            case Received(_, runs):
                return self._received(runs, limit)
            case WokenUp(busy) if (
                not self.receiving
            ):  # at least one message waits: a worker takes it while the monitor counts
                return replace(self._peeked(PeekCounted(1, busy), limit), peeks=0, peek_in=QUICK_PEEK_S)
            case WokenUp() if self.workers < limit:
                return replace(self, peeks=0, peek_in=0.0)
        return replace(self, peek_in=None)

    def _peeked(self, seen: PeekCounted, limit: int) -> PeekStrategy:
        workers = max(1, min(limit, seen.busy + max(0, seen.count - seen.without_message)))
        here = replace(self, workers=workers, waiting=seen.count, hits=0, peek_in=self.peek_delay)
        peeks = 0 if seen.count and self.peeks is None else self.peeks
        if peeks is None or (seen.count and workers == limit):
            return here
        more = None if _pause(peeks + 1) > self.peek_delay else peeks + 1
        return replace(here, peek_in=min(_pause(peeks), self.peek_delay), peeks=more)

    def _received(self, runs: tuple[int, ...], limit: int) -> PeekStrategy:
        got = sum(run for run in runs if run > 0)
        missed = any(run < 0 for run in runs)
        hits = self.hits + got
        empty_rounds = 0 if hits else self.empty_rounds
        here = replace(self, hits=hits, empty_rounds=empty_rounds, peeks=0 if got else self.peeks, peek_in=None)
        if not self.receiving:
            return replace(here, peek_in=0.0) if got and missed else here
        batch_taken = hits >= self.waiting and self.workers < limit
        if not (missed or batch_taken):
            return here
        empty_rounds = 0 if hits else empty_rounds + 1
        peek_in = 0.0 if empty_rounds <= 1 else min(self.peek_delay, poll_pause(empty_rounds - 1))
        return replace(here, waiting=0, hits=0, empty_rounds=empty_rounds, peek_in=peek_in)


def _pause(peeks: int) -> float:
    """Return the seconds after a peek, of which there were so many since work."""
    return QUICK_PEEK_S if peeks < QUICK_PEEKS else LONGER_PAUSE_S * 2.0 ** (peeks - QUICK_PEEKS)


def make_strategy(name: str, peek_delay: float = 1.0, limit: int = 1) -> Strategy:
    """Return the initial value of a strategy.

    Args:
        name: fixed, adaptive or peek.
        peek_delay: seconds between two peeks of an idle queue.
        limit: maximum number of workers.

    Raises:
        SettingsError: no such strategy.
    """
    if name == "fixed":
        return FixedStrategy(peek_delay, workers=limit)
    if name == "adaptive":
        return AdaptiveStrategy(peek_delay)
    if name == "peek":
        # a sender may be about to commit that found no wake-up request: the first peeks follow quickly, as after work
        return PeekStrategy(peek_delay, peeks=0)
    raise SettingsError(f"Unknown strategy {name!r}. Use peek, adaptive or fixed.")


def poll_pause(misses: int) -> float:
    """Return the seconds that a poller waits after `misses` empty receives in a row: 50 ms, doubled up to 1 s.

    >>> [poll_pause(misses) for misses in (0, 1, 2, 3, 4, 5, 6, 7)]
    [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    """
    if misses <= 0:
        return 0.0
    return min(MAX_POLL_PAUSE_S, MIN_POLL_PAUSE_S * 2.0 ** min(misses - 1, 10))


def spare_workers(idle: Mapping[int, float], workers: int, target: int, idle_timeout: float) -> list[int]:
    """Return the workers that may exit: idle for at least `idle_timeout` seconds, longest first.

    Args:
        idle: seconds since each idle worker had work, by its number.
        workers: number of idle and busy workers.
        target: number of workers to keep.

    >>> spare_workers({1: 5.0, 2: 9.0, 3: 0.5}, workers=3, target=1, idle_timeout=2.0)
    [2, 1]
    """
    candidates = sorted((key for key, seconds in idle.items() if seconds >= idle_timeout), key=lambda key: -idle[key])
    return candidates[: max(0, workers - target)]


def check_peek_delay(seconds: float) -> str | None:
    """Check a peek delay; return a warning if it is above 10 s, else None.

    Raises:
        SettingsError: it is below 0.1 s.
    """
    if seconds < MIN_PEEK_DELAY_S:
        raise SettingsError(
            f"peek_delay {seconds} s is too short: such frequent peeks load the database. Use at least "
            f"{MIN_PEEK_DELAY_S} s."
        )
    if seconds > RECOMMENDED_PEEK_DELAY_S:
        return (
            f"peek_delay {seconds} s is above {RECOMMENDED_PEEK_DELAY_S:g} s: messages may wait that long before they "
            f"are found. The recommended range is {MIN_PEEK_DELAY_S} to {RECOMMENDED_PEEK_DELAY_S:g} s."
        )
    return None
