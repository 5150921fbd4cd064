"""rowpost run: arguments and help."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from rowpost.cli.completion import queue_names
from rowpost.cli.session import Session

__all__ = ["run"]


def run(
    session: Session,
    endpoint: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE:ENDPOINT]...",
            help="Endpoints to run, such as shop.app:sales. Default: all queues with a worker in the environment.",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="QUEUE",
            help="Run only the workers of this queue. May be repeated.",
            autocompletion=queue_names,
        ),
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no messages are waiting.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="[HOST:]PORT",
            help=(
                "Serve metrics for Prometheus, and /health/live and /health/ready, at this port of this machine; 0 "
                "takes a free one. Default: supervisor.metrics in the environment's file."
            ),
            show_default=False,
        ),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help=(
                "On a terminal too, write one line for each change, without colours and without drawing again: for "
                "screen readers."
            ),
        ),
    ] = False,
    install: Annotated[
        bool,
        typer.Option(
            "--install", help="For development: first create the queues and the tables of sagas that are missing."
        ),
    ] = False,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="For development: start again when a Python file or an environment's file below this folder changes.",
        ),
    ] = False,
) -> None:
    """Run endpoints, or the workers of the environment's queues.

    Shows a live table on a terminal, and log lines elsewhere or with --plain. The first Ctrl-C or SIGTERM waits until
    running handlers finish. The second one kills them, and their messages return to the queue.
    """
    # imported here because the other commands start faster without the workers' modules
    if reload:
        from rowpost.cli.run.reload import run_and_reload

        run_and_reload(session)
        return
    from rowpost.cli.run.selection import selected_settings
    from rowpost.cli.run.workers import work

    load = partial(selected_settings, endpoints=endpoint or (), queues=queue or (), metrics=metrics)
    work(session, load, until_idle, install=install, plain=plain)
