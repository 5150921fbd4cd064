"""rowpost bridge install, run: move messages between two environments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from signal import Signals
from typing import TYPE_CHECKING, Annotated

import typer

from rowpost.cli.command import YesOption, command
from rowpost.cli.exits import CommandInterrupted, ExitCode, Refused
from rowpost.cli.session import PRODUCTION, Session
from rowpost.database.connection import connect
from rowpost.settings.bridge import BridgeSettings, load_bridge

if TYPE_CHECKING:
    from rowpost.workers.bridge.bridge import Bridge
    from rowpost.workers.events import Event

__all__ = ["app"]

app = typer.Typer(help="Move messages between the queues of two environments.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(metavar="[FILE]", help="The bridge's file.", show_default="bridge.yml")]
FILE = Path("bridge.yml")


@command(app)
def install(session: Session, file: FileArgument = FILE, yes: YesOption = False) -> None:
    """Make the proxy queues on both sides, and subscribe them to events."""
    bridge = _load(session, file)
    names = " and ".join(side.settings.target for side in bridge.sides)
    session.confirm(f"Make what the bridge {bridge.name} needs in {names}?", yes)
    _install(session, bridge)


@command(app)
def run(
    session: Session,
    file: FileArgument = FILE,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no messages are waiting.")] = False,
    install: Annotated[
        bool, typer.Option("--install", help="For development: first make the proxy queues that are missing.")
    ] = False,
) -> None:
    """Move messages in both directions until Ctrl-C or SIGTERM.

    The first signal waits for the batches that are being moved, the second one does not. Several processes may run the
    same bridge: in each direction one of them moves messages, and the others wait.
    """
    # imported here because other commands start faster without them
    from rowpost.cli.run.event_text import print_event
    from rowpost.cli.run.output import patient
    from rowpost.cli.run.supervise import pending, supervise
    from rowpost.workers.bridge.bridge import Bridge

    bridge = _load(session, file)
    if install:
        if any(side.settings.environment == PRODUCTION for side in bridge.sides):
            raise Refused(
                "bridge run --install is for development. In production, run rowpost bridge install.", ExitCode.USAGE
            )
        _install(session, bridge)
    _prepare(session, bridge)
    queued: SimpleQueue[Event] = SimpleQueue()
    running = Bridge(bridge, on_event=queued.put)
    severity = min(side.settings.log.number for side in bridge.sides)

    def draw() -> None:
        for event in pending(queued, severity):
            if session.as_json or not event.frequent:
                print_event(session, event, as_json=session.as_json)

    with patient(session, as_json=session.as_json):
        stopped_by = supervise(running, draw, (lambda snapshot: snapshot.idle) if until_idle else None)
        _print_totals(session, running)
    if stopped_by is Signals.SIGINT:
        raise CommandInterrupted("what was being moved is finished; waiting messages stay in their queues")


def _print_totals(session: Session, running: Bridge) -> None:
    for source, target, endpoint, counts in running.snapshot().counts:
        if session.as_json:
            session.document(
                {"event": "Totals", "source": source, "target": target, "queue": endpoint} | asdict(counts)
            )
        else:
            session.out.print(
                f"{endpoint}, from {source} to {target}: {counts.sent:,} moved, {counts.discarded:,} discarded, "
                f"{counts.failed:,} moved to error",
                soft_wrap=True,
            )


def _load(session: Session, file: Path) -> BridgeSettings:
    if session.environment is not None:
        raise Refused("A bridge has two environments, which its file names: leave --env out.", ExitCode.USAGE)
    return load_bridge(file)


def _install(session: Session, bridge: BridgeSettings) -> None:
    from rowpost.workers.bridge.installation import install as install_side

    first, second = bridge.sides
    for here, there in ((first, second), (second, first)):
        with connect(here.settings, application_name="rowpost command line") as database:
            made = install_side(bridge, here, there, database)
        proxies = [each.proxy for each in there.endpoints]
        session.answer(
            {"side": here.name, "proxies": proxies, "installed": list(made)},
            f"{here.name}: {', '.join(proxies) or 'no queue'} for {there.name}; {len(made)} objects made in "
            f"{here.settings.target}.",
        )


def _prepare(session: Session, bridge: BridgeSettings) -> None:
    """Check both sides, and subscribe."""
    from rowpost.workers.bridge.installation import check, subscribe

    first, second = bridge.sides
    for here, there in ((first, second), (second, first)):
        with connect(here.settings, application_name="rowpost command line") as database:
            for queue in check(bridge, here, there, database):
                session.note(
                    f"{here.name}: the queue {queue} is not registered; the bridge's login needs the right to insert "
                    "into its table."
                )
            subscribe(here, there, database)
