"""Start a stream again that ends with an error that may pass, for commands that run as a service (`--every`).

Spark repeats a task that fails, but not the process that plans a stream, and one error of it ends the stream. A process
that starts too slowly on a busy machine, and a disk that is full for a minute, are such errors. What a user must mend
is raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rowpost.archive.source.connection import Say, say
from rowpost.spark.explain import is_passing, to_rowpost_error

__all__ = ["MAX_RESTARTS", "keep_running"]

#: Restarts in a row without a batch between them.
MAX_RESTARTS = 5
FIRST_DELAY_S = 1.0
Result = TypeVar("Result")


def keep_running(
    run: Callable[[], Result],
    batches: Mapping[int, Any],
    queue: str,
    *,
    say: Say = say,
    sleep: Callable[[float], object] = time.sleep,
) -> Result:
    """Run a stream to its end, and again after an error that may pass: after 1 second, then twice as long each time.

    Args:
        run: starts the stream, and returns when it ends.
        batches: the stream's batches so far. A new one ends a row of restarts.
        queue: named in the line that is printed for each restart.
        say: receives that line.
        sleep: waits, in seconds.

    Raises:
        Exception: what ended the stream, if it cannot pass, or after MAX_RESTARTS restarts in a row.
    """
    restarts, before = 0, len(batches)
    while True:
        try:
            return run()
        except Exception as error:
            restarts, before = (0 if len(batches) > before else restarts), len(batches)
            if restarts == MAX_RESTARTS or not is_passing(error):
                raise
            delay = FIRST_DELAY_S * 2**restarts
            restarts += 1
            reason = str(to_rowpost_error(error)).rstrip(".")
            say(
                f"the stream of {queue} ended: {reason}. It starts again in {delay:g} seconds (restart {restarts} of "
                f"{MAX_RESTARTS} in a row)"
            )
            sleep(delay)
