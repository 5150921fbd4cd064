"""rowpost run: the supervisor in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.completion import queue_names
from rowpost.cli.session import Session

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "run")(run)


def run(
    session: Session,
    endpoint: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE:ENDPOINT]...",
            help="Endpoints to run, such as shop.app:sales; by default the queues with a worker in the environment.",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", "-q", metavar="QUEUE", help="Work only this queue; may be repeated.", autocompletion=queue_names
        ),
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Leave when nothing waits any more.")] = False,
) -> None:
    """Run endpoints, or work off the queues that have a worker: a live table on a terminal, log lines elsewhere.

    Ctrl-C or SIGTERM once lets running handlers finish, twice kills them; their messages are back then.
    """
    # the other commands start faster without workers and their processes
    from rowpost.cli.run.workers import work

    work(session, endpoint, queue, until_idle)
