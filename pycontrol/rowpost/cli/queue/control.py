"""rowpost queue pause, resume, limit: what all supervisors do with a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import QueueArgument, command
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import OPERATOR, Session
from rowpost.database.connection import Connection
from rowpost.errors import PermissionDenied
from rowpost.transport.controls import limit_workers, list_controls, pause, resume
from rowpost.transport.supervisors import supervisors_of

__all__ = ["register"]

ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for those who read it. Up to 400 characters.")]
OTHERS = "Programs without a supervisor of rowpost, such as NServiceBus endpoints, go on receiving."


def register(app: typer.Typer) -> None:
    """Add the commands to a group."""
    command(app, "pause")(pause_queue)
    command(app, "resume")(resume_queue)
    command(app, "limit")(limit)


def pause_queue(session: Session, name: QueueArgument, reason: ReasonOption = None) -> None:
    """Receive nothing new from a queue, on all hosts. Messages in flight are handled; sends still arrive."""
    with session.deployed() as database:
        names = _names(session, name)
        for each in names:
            with OPERATOR.operation(database, "pause", each, reason=reason) as noted:
                noted.done = 0
                pause(database, each, reason)
        _print(session, database, names, "Paused {}.", OTHERS)


def resume_queue(session: Session, name: QueueArgument, reason: ReasonOption = None) -> None:
    """Receive from a paused queue again."""
    with session.deployed() as database:
        names = _names(session, name)
        for each in names:
            with OPERATOR.operation(database, "resume", each, reason=reason) as noted:
                noted.done = 0
                resume(database, each, reason)
        _print(session, database, names, "Resumed {}.")


def limit(
    session: Session,
    name: QueueArgument,
    workers: Annotated[int | None, typer.Argument(metavar="[WORKERS]", min=1, max=10_000, help="How many workers.", show_default=False)] = None,
    total: Annotated[
        bool, typer.Option("--total", help="For all supervisors together: the number is divided among those that are alive. Default: for each.")
    ] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Let the environments decide again.")] = False,
    reason: ReasonOption = None,
) -> None:
    """Set how many workers supervisors run for a queue at most. It goes before the environment's `limit` until it is cleared."""
    if (workers is None) != clear or (clear and total):
        raise Refused("Name a number of workers, or --clear.", ExitCode.USAGE)
    with session.deployed() as database:
        names = _names(session, name)
        for each in names:
            with OPERATOR.operation(database, "limit", each, reason=reason, limit=workers, shared=total) as noted:
                noted.done = 0
                limit_workers(database, each, workers, shared=total, reason=reason)
        where = "all supervisors together" if total else "each supervisor"
        _print(
            session,
            database,
            names,
            "{} has as many workers as its environment says." if clear else f"{{}} has at most {workers} workers in {where}.",
        )


def _names(session: Session, name: str) -> list[str]:
    """Return the queue, or its partitions: supervisors receive from those."""
    queue = session.settings.queue(session.name(name))
    return [session.name(name)] if queue is None or not queue.partitions else list(queue.partitions)


def _print(session: Session, database: Connection, names: list[str], text: str, *more: str) -> None:
    if session.as_json:
        found = {each.queue: each for each in list_controls(database)}
        for name in names:
            control = found.get(name)
            session.document({"queue": name} | ({"paused": False, "limit": None} if control is None else control._asdict()))
        return
    session.note(" ".join([text.format(", ".join(names)), *_effect(database, names), *more]))


def _effect(database: Connection, names: list[str]) -> list[str]:
    """Say which supervisors will see it, if the login may list them."""
    try:
        hosts = sorted({each.host for each in supervisors_of(database) if not each.gone and not set(names).isdisjoint(each.queues)})
    except PermissionDenied:
        return []
    if not hosts:
        return ["No supervisor receives from it now."]
    return [f"Effective within a peek delay on {', '.join(hosts)}."]
