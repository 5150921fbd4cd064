"""How many workers a queue needs: pure decisions from what was seen (seeds 000, 001, 002 and 004).

One interface, three strategies. A strategy is a frozen value; `after(seen, limit)` gives the next value, and its
`workers` is the number that the supervisor moves towards.

    Fixed      transports 1.x and 2.0 (seed 000): `limit` pollers on each queue, all polling all the time
    Adaptive   transport 2.1 (seeds 000, 004): hits in a row start a poller, misses in a row stop one
    Peek       transport 3 and later (seeds 000, 002): one monitor peeks; receivers up to the limit until one
               receive finds nothing, then straight back to peek

The thresholds of Adaptive are those of transport 2.1, the peek delays those of transport 3.

>>> idle = Peek()
>>> burst = idle.after(Peeked(1000), limit=4)
>>> burst.workers, burst.after(Received(1, (46, -1)), limit=4).peek_in
(4, 0.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from rowpost.errors import SettingsError

__all__ = [
    "LONG_RECEIVE",
    "Adaptive",
    "Fixed",
    "Peek",
    "Peeked",
    "Ramp",
    "Received",
    "Seen",
    "StillBusy",
    "WokenUp",
    "check_peek_delay",
    "emulated_queues",
    "fixed_pollers",
    "poll_pause",
    "spare_workers",
    "strategy",
]

# Transport 2.1: more than this many hits in a row start a poller, this many misses in a row stop one.
ENOUGH_HITS = 5
ENOUGH_MISSES = 7
# Transport 2.1: a receive that is busy longer brings one more poller, once per message. Seconds.
LONG_RECEIVE = 5.0
# Pause of a poller that found nothing: doubled from the first to the second. Seconds.
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
# The monitor's first pause after work, doubled at each peek up to the peek delay; and from which on it counts as asleep:
# then it wants to be woken. Until then nobody needs to: senders in a steady flow never wake anybody. Seconds.
QUICK_PEEK = 0.005
ASLEEP = 0.04
# Seed 002: "The recommended range for this setting is between 100 milliseconds to 10 seconds." Seconds.
LEAST_PEEK_DELAY = 0.1
GREATEST_PEEK_DELAY = 10.0


@dataclass(frozen=True, slots=True)
class Peeked:
    """The monitor saw `count` messages waiting while `busy` workers were receiving, `coming` of them with empty hands."""

    count: int
    busy: int = 0
    coming: int = 0


@dataclass(frozen=True, slots=True)
class WokenUp:
    """A sender says that messages have come, while `busy` workers were receiving."""

    busy: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """One worker's receives in order: +n for n messages in a row, -n for n empty receives in a row."""

    poller: int
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StillBusy:
    """One worker has been busy with the same message for `seconds`."""

    poller: int
    seconds: float


Seen = Peeked | Received | WokenUp | StillBusy


class Ramp(Protocol):
    """What the supervisor needs of a strategy.

    `workers` is the target number; `polls` says whether workers poll by themselves (else they wait to be told), `asleep`
    whether the monitor would be woken rather than look;
    `peek_in` is the seconds until the next peek, None where the plan stands; `stop` is the worker that has to leave
    by the last decision, None where none has.
    """

    workers: int
    peek_in: float | None
    stop: int | None

    @property
    def polls(self) -> bool: ...

    @property
    def asleep(self) -> bool: ...

    def after(self, seen: Seen, limit: int) -> Ramp: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Transports 1.x and 2.0: a fixed number of pollers, busy or not (seed 000, "Prior to version 2.0")."""

    peek_delay: float = 1.0
    workers: int = 1
    peek_in: float | None = 0.0
    stop: int | None = None

    @property
    def polls(self) -> bool:
        return True

    @property
    def asleep(self) -> bool:
        return False

    def after(self, seen: Seen, limit: int) -> Fixed:
        """The limit, whatever was seen; peeks serve the display only."""
        return replace(self, workers=limit, peek_in=self.peek_delay if isinstance(seen, Peeked) else None)


@dataclass(frozen=True, slots=True)
class _Counters:
    hits: int = 0
    misses: int = 0
    boosted: bool = False


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Transport 2.1: each poller counts its own receives (seed 004, "executed by each polling thread").

    A hit zeroes the misses and a miss the hits. More than five hits in a row start a poller and are zeroed; seven
    misses in a row stop the poller that had them, never the last one.
    """

    peek_delay: float = 1.0
    workers: int = 1
    peek_in: float | None = 0.0
    stop: int | None = None
    counters: Mapping[int, _Counters] = field(default_factory=dict)

    @property
    def polls(self) -> bool:
        return True

    @property
    def asleep(self) -> bool:
        return False

    def after(self, seen: Seen, limit: int) -> Adaptive:
        """One more or one less, by what a poller met."""
        here = replace(self, workers=max(1, min(self.workers, limit)), peek_in=None, stop=None)
        match seen:
            case Peeked():
                return replace(here, peek_in=self.peek_delay)
            case StillBusy(poller, seconds):
                return here._boosted(poller, seconds, limit)
            case Received(poller, runs):
                for run in runs:
                    here = here._hits(poller, run, limit) if run > 0 else here._misses(poller, -run)
        return here

    def _boosted(self, poller: int, seconds: float, limit: int) -> Adaptive:
        counters = self.counters.get(poller, _Counters())
        if seconds <= LONG_RECEIVE or counters.boosted:
            return self
        return replace(
            self,
            workers=min(limit, self.workers + 1),
            counters={**self.counters, poller: replace(counters, boosted=True)},
        )

    def _hits(self, poller: int, count: int, limit: int) -> Adaptive:
        started, hits = divmod(self.counters.get(poller, _Counters()).hits + count, ENOUGH_HITS + 1)
        return replace(
            self,
            workers=max(1, min(limit, self.workers + started)),
            counters={**self.counters, poller: _Counters(hits=hits)},
        )

    def _misses(self, poller: int, count: int) -> Adaptive:
        misses = self.counters.get(poller, _Counters()).misses + count
        if misses < ENOUGH_MISSES:
            return replace(self, counters={**self.counters, poller: _Counters(misses=misses)})
        others = {key: value for key, value in self.counters.items() if key != poller}
        if self.workers == 1:
            return replace(self, counters=others)
        return replace(self, workers=self.workers - 1, stop=poller, counters=others)


@dataclass(frozen=True, slots=True)
class Peek:
    """Transport 3 and later (seeds 000, 002): peek mode and receive mode, one monitor per queue.

    A peek that finds n messages opens a round: receivers up to min(limit, n) beside those already busy. The round
    ends with the first receive that finds nothing (seed 002: "the transport immediately switches back to the peek
    mode") or when the n messages are taken while more workers are allowed; then the next peek is at once. At rest the
    next peek is `peek_delay` away; after work, and while workers could be added, it is soon, and further away each
    time: what commits late is found within as long again as it took. Rounds that bring no message at all, two or more
    in a row, back off: an estimate that is wrong never makes the monitor spin.
    """

    peek_delay: float = 1.0
    workers: int = 1
    peek_in: float | None = 0.0
    stop: int | None = None
    waiting: int = 0
    hits: int = 0
    barren: int = 0
    #: the next pause; None: the peek delay
    pause: float | None = None

    @property
    def polls(self) -> bool:
        return False

    @property
    def receiving(self) -> bool:
        """Whether a round is open: the receive mode of seed 002."""
        return self.waiting > 0

    @property
    def asleep(self) -> bool:
        """Whether the monitor would like to be woken, instead of looking."""
        return not self.receiving and (self.pause is None or self.pause >= ASLEEP)

    def after(self, seen: Seen, limit: int) -> Peek:
        """Peek mode to receive mode and back."""
        match seen:
            case Peeked():
                return self._peeked(seen, limit)
            case Received(_, runs):
                return self._received(runs, limit)
            case WokenUp(busy) if not self.receiving:  # one waits at least: somebody takes it while the monitor counts
                return replace(self._peeked(Peeked(1, busy), limit), pause=QUICK_PEEK, peek_in=QUICK_PEEK)
            case WokenUp() if self.workers < limit:
                return replace(self, pause=QUICK_PEEK, peek_in=0.0)
        return replace(self, peek_in=None)

    def _peeked(self, seen: Peeked, limit: int) -> Peek:
        workers = max(1, min(limit, seen.busy + max(0, seen.count - seen.coming)))
        here = replace(self, workers=workers, waiting=seen.count, hits=0, peek_in=self.peek_delay)
        pause = QUICK_PEEK if seen.count and self.pause is None else self.pause
        if pause is None or (seen.count and workers == limit):
            return here
        longer = 2 * pause
        return replace(here, peek_in=min(pause, self.peek_delay), pause=None if longer > self.peek_delay else longer)

    def _received(self, runs: tuple[int, ...], limit: int) -> Peek:
        got = sum(run for run in runs if run > 0)
        missed = any(run < 0 for run in runs)
        hits = self.hits + got
        barren = 0 if hits else self.barren
        here = replace(self, hits=hits, barren=barren, pause=QUICK_PEEK if got else self.pause, peek_in=None)
        if not self.receiving:
            return replace(here, peek_in=0.0) if got and missed else here
        batch_taken = hits >= self.waiting and self.workers < limit
        if not (missed or batch_taken):
            return here
        barren = 0 if hits else barren + 1
        again = 0.0 if barren <= 1 else min(self.peek_delay, poll_pause(barren - 1))
        return replace(here, waiting=0, hits=0, barren=barren, peek_in=again)


def strategy(name: str, peek_delay: float = 1.0, limit: int = 1) -> Ramp:
    """The strategy of that name, as it begins: fixed, adaptive or peek. Raises SettingsError."""
    if name == "fixed":
        return Fixed(peek_delay, workers=limit)
    if name == "adaptive":
        return Adaptive(peek_delay)
    if name == "peek":
        # a sender that found nobody asleep may be about to commit: the first looks follow one another as after work
        return Peek(peek_delay, pause=QUICK_PEEK)
    message = f"strategy {name!r} is not known: write peek, adaptive or fixed"
    raise SettingsError(message)


def poll_pause(misses: int) -> float:
    """Seconds that a poller waits after that many empty receives in a row: 50 ms doubled up to 1 s.

    >>> [poll_pause(misses) for misses in (0, 1, 2, 3, 4, 5, 6, 7)]
    [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    """
    if misses <= 0:
        return 0.0
    return min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(misses - 1, 10))


def spare_workers(idle: Mapping[int, float], workers: int, wanted: int, idle_timeout: float) -> list[int]:
    """Workers that may leave: idle at least `idle_timeout` seconds, longest first, one poller always stays (seed 000).

    `idle` maps a worker to the seconds since it had work; `workers` counts idle and busy ones, `wanted` the target.

    >>> spare_workers({1: 5.0, 2: 9.0, 3: 0.5}, workers=3, wanted=1, idle_timeout=2.0)
    [2, 1]
    """
    ripe = sorted((key for key, seconds in idle.items() if seconds >= idle_timeout), key=lambda key: -idle[key])
    return ripe[: max(0, workers - max(1, wanted))]


def check_peek_delay(seconds: float) -> str | None:
    """Refuse a delay below 0.1 s (SettingsError); the text of a warning above 10 s, else None (seed 002)."""
    if seconds < LEAST_PEEK_DELAY:
        message = f"peek_delay {seconds} s is too short: it stresses the database; write at least {LEAST_PEEK_DELAY} s"
        raise SettingsError(message)
    if seconds > GREATEST_PEEK_DELAY:
        return (
            f"peek_delay {seconds} s is above {GREATEST_PEEK_DELAY:g} s: messages may back up while nobody looks; "
            f"{LEAST_PEEK_DELAY} to {GREATEST_PEEK_DELAY:g} s is the recommended range"
        )
    return None


def emulated_queues(endpoint: str, version: str, machine: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Primary and secondary input queues of an endpoint of transport "1.x" or "2.0" (seed 004: four, and a callback).

    >>> emulated_queues("Sales", "2.0", "WEB01")
    (('Sales', 'Sales.Timeouts', 'Sales.TimeoutsDispatcher', 'Sales.Retries'), ('Sales.WEB01',))
    """
    primary = tuple(f"{endpoint}{suffix}" for suffix in ("", ".Timeouts", ".TimeoutsDispatcher", ".Retries"))
    return primary, (f"{endpoint}.{machine}",) if version.startswith("2") else ()


def fixed_pollers(level: int, queues: int, secondary: int = 0, secondary_level: int = 1) -> int:
    """Pollers of an endpoint with fixed concurrency: `level` on each queue, `secondary_level` on each callback queue.

    >>> fixed_pollers(10, queues=4), fixed_pollers(10, queues=4, secondary=1)
    (40, 41)
    """
    return level * queues + secondary_level * secondary
