"""rowpost demo: arguments and help."""

from __future__ import annotations

from typing import Annotated

import typer

from rowpost.cli.exits import ExitCode
from rowpost.cli.session import Session

__all__ = ["demo"]


def demo(
    session: Session,
    orders: Annotated[
        int, typer.Option("--orders", min=1, max=1_000_000, help="Number of orders in the burst.")
    ] = 20_000,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Maximum number of workers.")] = 4,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--clean",
            help="Keep or delete the demo's queues at the end. Default: keep them in the embedded database only.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before deploying into a database that is not embedded.")
    ] = False,
) -> ExitCode:
    """Run a demo: a second process sends a burst of orders, workers start and stop, and some messages fail.

    Uses queues named Demo.* and a table demo_order, in the private PostgreSQL server unless you name an environment.
    Exit code 0 only if every message was handled exactly once.
    """
    # imported here because the other commands start faster without the workers' modules
    from rowpost.cli.demo.show import show

    embedded = session.settings.embedded
    if not embedded:
        session.confirm(f"Deploy rowpost and the demo's queues into {session.settings.target}?", yes)
    return show(session, orders, workers, keep=embedded if keep is None else keep)
