"""rowpost queue pause, resume, limit: what all supervisors do with a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from rowpost.cli.command import QueueArgument
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import OPERATOR, Session
from rowpost.database.connection import Connection
from rowpost.operations.operation import Operation
from rowpost.operations.queues import Controlled, LimitWorkers, Pause, Resume, effect
from rowpost.transport.controls import list_controls

__all__ = ["limit", "pause_queue", "resume_queue"]

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why, for those who read it. Up to 400 characters.")
]
OTHERS = "Programs without a supervisor of rowpost, such as NServiceBus endpoints, go on receiving."


def pause_queue(session: Session, name: QueueArgument, reason: ReasonOption = None) -> None:
    """Receive nothing new from a queue, on all hosts. Messages in flight are handled; sends still arrive."""
    with session.deployed() as database:
        _execute(session, database, [Pause(queue=each, reason=reason) for each in _names(session, name)], OTHERS)


def resume_queue(session: Session, name: QueueArgument, reason: ReasonOption = None) -> None:
    """Receive from a paused queue again."""
    with session.deployed() as database:
        _execute(session, database, [Resume(queue=each, reason=reason) for each in _names(session, name)])


def limit(
    session: Session,
    name: QueueArgument,
    workers: Annotated[
        int | None, typer.Argument(metavar="[WORKERS]", min=1, max=10_000, help="How many workers.", show_default=False)
    ] = None,
    total: Annotated[
        bool,
        typer.Option(
            "--total",
            help="For all supervisors together: the number is divided among those that are alive. Default: for each.",
        ),
    ] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Let the environments decide again.")] = False,
    reason: ReasonOption = None,
) -> None:
    """Set how many workers supervisors run for a queue at most.

    It goes before the environment's `limit` until it is cleared.
    """
    if (workers is None) != clear or (clear and total):
        raise Refused("Name a number of workers, or --clear.", ExitCode.USAGE)
    with session.deployed() as database:
        limits = [
            LimitWorkers(queue=each, reason=reason, limit=workers, shared=total) for each in _names(session, name)
        ]
        _execute(session, database, limits)


def _names(session: Session, name: str) -> list[str]:
    """Return the queue, or its partitions: supervisors receive from those."""
    queue = session.settings.queue(session.name(name))
    return [session.name(name)] if queue is None or not queue.partitions else list(queue.partitions)


def _execute(session: Session, database: Connection, operations: Sequence[Operation[Controlled]], *more: str) -> None:
    done = [operation.execute(database, OPERATOR) for operation in operations]
    names = [each.queue for each in done]
    if session.as_json:
        found = {each.queue: each for each in list_controls(database)}
        for name in names:
            control = found.get(name)
            session.document(
                {"queue": name} | ({"paused": False, "limit": None} if control is None else control._asdict())
            )
        return
    session.note(" ".join(filter(None, [*(each.sentence for each in done), effect(database, names), *more])))
