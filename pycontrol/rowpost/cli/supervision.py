"""A supervisor in a thread of its own, so that this one can draw what it does and pass signals on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from rowpost.workers.snapshot import Snapshot
from rowpost.workers.supervisor import Supervisor

__all__ = ["supervise"]


def supervise(
    supervisor: Supervisor,
    draw: Callable[[], None],
    every: float,
    until: Callable[[Snapshot], bool] | None = None,
) -> signal.Signals | None:
    """Runs a supervisor to its end; calls `draw` every so many seconds and once more after the end.

    The first SIGINT or SIGTERM lets running handlers finish, the second one kills. Returns the signal that ended it,
    None if it ended by itself. Raises what the supervisor raises; when `draw` raises, the supervisor is stopped first.
    """
    received: list[int] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            supervisor.run(until)
        except BaseException as error:  # noqa: BLE001 -- raised again in the main thread
            failed.append(error)

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        supervisor.stop()

    thread = threading.Thread(target=work, name="rowpost supervisor")
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread.start()
        try:
            while thread.is_alive():
                draw()
                thread.join(every)
        except BaseException:
            supervisor.stop()
            raise
        finally:
            thread.join()
        draw()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if failed:
        raise failed[0]
    return signal.Signals(received[0]) if received else None
