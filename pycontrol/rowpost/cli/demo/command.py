"""rowpost demo."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode
from rowpost.cli.session import Session

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    command(app, "demo")(demo)


def demo(
    session: Session,
    orders: Annotated[int, typer.Option("--orders", min=1, max=1_000_000, help="Orders in the burst.")] = 20_000,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Workers at most.")] = 4,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--clean", help="Leave the demo's queues for a look. Default: in the embedded database only."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before using a database of yours.")] = False,
) -> ExitCode:
    """See it work: a burst of orders from a second process, workers that come and go, errors with their reasons.

    Uses queues named Demo.* and a table demo_order, in the private PostgreSQL unless an environment says otherwise.
    Exit code 0 only if every message was handled exactly once.
    """
    from rowpost.cli.demo.show import show  # as in run.py

    embedded = session.settings.embedded
    if not embedded:
        session.confirm(f"Deploy rowpost and the demo's queues into {session.settings.target}?", yes)
    return show(session, orders, workers, keep=embedded if keep is None else keep)
