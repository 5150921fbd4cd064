"""rowpost archive: archive queues on one machine, without Spark and without Java."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowpost.cli.archiving import (
    AcceptLossOption,
    DrainOption,
    EveryOption,
    FailWhenHeldOption,
    MaxBytesOption,
    MaxRowsOption,
    OnceOption,
    ProgressOption,
    PrometheusOption,
    QueuesArgument,
    SharedOption,
    TakeOverOption,
    check_options,
    check_queues,
    counter,
    counts,
    receivers,
    why_held,
)
from rowpost.cli.command import command
from rowpost.cli.exits import ExitCode, Interrupted
from rowpost.cli.formats import parse_duration
from rowpost.cli.session import Session
from rowpost.errors import SparkUnavailable
from rowpost.version import install_command

if TYPE_CHECKING:
    from rowpost.archive.progress import Receiver
    from rowpost.archive.source.options import ReadOptions

__all__ = ["register"]

_TAIL_ROWS = 250_000
_SHORTEST_S = 0.01  # between two polls


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "archive")(archive)


def archive(
    session: Session,
    queue: QueuesArgument,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The archive: a folder, or a URI such as s3://bucket/archive.")],
    drain: DrainOption = False,
    shared: SharedOption = False,
    take_over: TakeOverOption = False,
    recreated: Annotated[bool, typer.Option("--recreated", help="The queue was dropped and created again: archive it from its beginning.")] = False,
    every: EveryOption = None,
    once: OnceOption = False,
    max_rows: MaxRowsOption = None,
    max_bytes: MaxBytesOption = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="FOLDER",
            help="Note outside of DIR how far it is: DIR is then refused if it is restored from an older copy. It is not needed to continue.",
            show_default=False,
        ),
    ] = None,
    accept_loss: AcceptLossOption = False,
    fail_when_held: FailWhenHeldOption = False,
    progress: ProgressOption = None,
    prometheus: PrometheusOption = None,
) -> ExitCode:
    """Archive a queue's messages to a Delta table by queue and day, each exactly once, without Spark. Stop it with Ctrl-C or SIGTERM."""
    mode = "drain" if drain else "tail"
    check_options(mode, once=once, every=every, of_drain=shared or take_over, fail_when_held=fail_when_held)
    every_s = None if every is None else max(parse_duration(every).total_seconds(), _SHORTEST_S)
    names = [session.stream_name(each) for each in dict.fromkeys(queue.split(","))]
    try:
        from rowpost.archive.address import delta_uri
        from rowpost.archive.source.options import DEFAULT_BYTES, DEFAULT_ROWS, ReadOptions
        from rowpost.archive.standalone.running import Stop
    except ImportError as error:
        raise _missing(error) from error
    delta_uri(folder)
    with session.deployed() as database:
        names = list(dict.fromkeys(check_queues(session, database, names)))
    options = [
        ReadOptions(
            name, session.environment, mode, max_rows=max_rows or (DEFAULT_ROWS if drain else _TAIL_ROWS),
            max_bytes=max_bytes or DEFAULT_BYTES, allow_consumers=shared, take_over=take_over, fail_on_data_loss=not accept_loss,
            connect_retry_s=ReadOptions.connect_retry_s if every is None else float("inf"),
        )
        for name in names
    ]  # fmt: skip
    with receivers(session, progress, prometheus) as receive:
        return _run(session, options, folder, every_s, Stop(), checkpoint, receive, recreated=recreated, fail_when_held=fail_when_held)


def _run(
    session: Session,
    options: list[ReadOptions],
    folder: str,
    every_s: float | None,
    stop: Any,
    checkpoint: str | None,
    receive: Sequence[Receiver],
    *,
    recreated: bool,
    fail_when_held: bool,
) -> ExitCode:
    from rowpost.archive.opening import create_table
    from rowpost.archive.source.connection import PatientConnection
    from rowpost.archive.standalone.archiver import ConfirmedOffsets, QueueArchiver
    from rowpost.archive.standalone.running import run
    from rowpost.archive.writer import TableWriter

    name = ",".join(each.queue for each in options)
    with stop.on_signals():
        writer = TableWriter(create_table(folder))
        noted, connect = ConfirmedOffsets(checkpoint), partial(PatientConnection, sleep=stop.sleep)
        archivers = [QueueArchiver(writer, each, recreated=recreated, checkpoint=noted, receivers=receive, connect=connect) for each in options]
        try:
            held = run(archivers, every_s, stop, counter(session, "{of} messages archived in {done} batches"))
            if stop.asked and every_s is None:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise Interrupted(f"what was archived of {name} is kept; run the same command again to continue") from None
    done: dict[str, Any] = {
        "queue": name, "mode": options[0].mode, "batches": sum(each.batches for each in archivers), "messages": sum(each.messages for each in archivers),
        "dropped_from_spool": sum(each.dropped for each in archivers), **(held.as_json() if options[0].mode == "tail" else {}), "out": folder,
    }  # fmt: skip
    if held.waiting:
        session.note(why_held(name, done))
    counts(session, done)
    return ExitCode.FINDING if fail_when_held and held.waiting else ExitCode.OK


def _missing(error: ImportError) -> SparkUnavailable:
    package = (error.name or "a package").partition(".")[0]
    return SparkUnavailable(f"rowpost archive needs {package}, which is not installed. Install it with: {install_command('archive')}")
