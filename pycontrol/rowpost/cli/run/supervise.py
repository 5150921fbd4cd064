"""Run a supervisor or a bridge in a thread, show what happens meanwhile, and pass signals on to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from queue import SimpleQueue
from signal import Signals
from typing import Any, Protocol

from rowpost.cli import hangups
from rowpost.workers.events import Event
from rowpost.workers.supervision.stop_signals import stop_signals

__all__ = ["Supervised", "pending", "supervise"]

DRAW_INTERVAL_S = 0.25


class Supervised(Protocol):
    """What runs in a thread of its own until it is stopped: a supervisor or a bridge."""

    def run(self, until: Callable[[Any], bool] | None = None) -> None:
        """Work until `stop` is called, or until `until` returns True for a snapshot."""

    def stop(self) -> None:
        """Let what is running finish; the second call does not wait for it."""


def supervise(
    supervised: Supervised,
    draw: Callable[[], None],
    until: Callable[[Any], bool] | None = None,
    *,
    every: float = DRAW_INTERVAL_S,
    on_hangup: Callable[[], None] | None = None,
) -> Signals | None:
    """Run a supervisor or a bridge in a thread until it ends. Call `draw` every `every` seconds and once after the end.

    The first SIGINT or SIGTERM lets running handlers finish, the second one kills them. SIGHUP calls `on_hangup`. If
    `draw` raises, the supervisor is stopped first. Raises what the supervisor raises.

    Returns:
        The signal that ended the supervisor, or None if it ended by itself.
    """
    received: list[Signals] = []

    def stop(number: Signals) -> None:
        received.append(number)
        supervised.stop()

    with stop_signals(stop, on_hangup), ThreadPoolExecutor(1, "rowpost supervisor") as thread:
        if on_hangup is not None:
            hangups.take_over(on_hangup)
        work = thread.submit(supervised.run, until)
        try:
            while not work.done():
                draw()
                wait([work], every)
        except BaseException:
            supervised.stop()
            raise
        draw()
    work.result()
    return received[0] if received else None


def pending(queued: SimpleQueue[Event], severity: int) -> Iterator[Event]:
    """Yield the events that wait and are severe enough to be shown."""
    while not queued.empty():
        event = queued.get()
        if event.severity >= severity:
            yield event
