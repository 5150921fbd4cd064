"""Whether a supervisor is alive, and ready: what `/health/live` and `/health/ready` say. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rowpost.workers.events import WorkerStarted
from rowpost.workers.exposition.observations import Observations, Status
from rowpost.workers.snapshot import QueueSnapshot

__all__ = ["LONGEST_SILENCE_S", "hindrances", "live_problem"]

#: the loop runs at least every ten seconds, because it reports who works
LONGEST_SILENCE_S = 30.0


def live_problem(status: Status) -> str:
    """Return why the supervisor is not alive; empty if it is."""
    if status.silent_s <= LONGEST_SILENCE_S:
        return ""
    return f"the supervisor's loop has not run for {status.silent_s:.0f} s"


def hindrances(status: Status, seen: Observations) -> list[str]:
    """Return what hinders the supervisor from handling messages; nothing if it is ready.

    A paused queue hinders nothing.
    """
    found = [problem] if (problem := live_problem(status)) else []
    if status.snapshot.stopping:
        found.append("the supervisor is stopping")
    for queue in status.snapshot.queues:
        found += (f"{queue.queue}: {problem}" for problem in _of_queue(queue, status, seen))
    return found


def _of_queue(queue: QueueSnapshot, status: Status, seen: Observations) -> Iterator[str]:
    peek = seen.peek(queue.queue)
    if queue.queue in status.refused:
        yield f"no worker can run: {status.refused[queue.queue]}"
        return
    if queue.critical:
        yield "receiving has failed for too long"
    if peek.error:
        yield f"the last peek failed: {peek.error}"
    elif peek.at is None:
        yield "no peek has been answered yet"
    if not (seen.able(queue.queue) or queue.paused or queue.quiet):
        started = seen.number(WorkerStarted, queue.queue)
        yield (
            "no worker runs: the last one has ended, and none has started since"
            if started
            else "no worker has started yet"
        )
