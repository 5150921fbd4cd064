"""rowpost archive: archive queues on one machine, without Spark and without Java."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rowpost.cli.archiving import ArchivingOptions, ProgressOptions, QueuesArgument, check_queues, missing_package
from rowpost.cli.exits import CommandInterrupted, ExitCode
from rowpost.cli.session import Session

if TYPE_CHECKING:
    from rowpost.archive.source.options import ReadOptions

__all__ = ["archive"]

_TAIL_ROWS = 250_000
_SHORTEST_S = 0.01  # between two polls


def archive(
    session: Session,
    queue: QueuesArgument,
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="The archive: a folder, or a URI such as s3://bucket/archive.")
    ],
    options: ArchivingOptions,
    progress: ProgressOptions,
    recreated: Annotated[
        bool,
        typer.Option("--recreated", help="The queue was dropped and created again: archive it from its beginning."),
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="FOLDER",
            help=(
                "Note outside of DIR how far it is: DIR is then refused if it is restored from an older copy. It is "
                "not needed to continue."
            ),
            show_default=False,
        ),
    ] = None,
) -> ExitCode:
    """Archive a queue's messages to a Delta table by queue and day, each exactly once, without Spark.

    Stop it with Ctrl-C or SIGTERM.
    """
    every_s = None if options.interval is None else max(options.interval.total_seconds(), _SHORTEST_S)
    names = [session.stream_name(each) for each in dict.fromkeys(queue.split(","))]
    try:
        from rowpost.archive.standalone.running import Stop, run
    except ImportError as error:
        raise missing_package("archive", error) from error
    from rowpost.archive.address import delta_uri
    from rowpost.archive.source.connection import PatientConnection
    from rowpost.archive.standalone.archiver import ConfirmedOffsets, QueueArchiver
    from rowpost.archive.table import create_table
    from rowpost.archive.writer import TableWriter

    delta_uri(folder)
    with session.deployed() as database:
        names = list(dict.fromkeys(check_queues(session, database, names)))
    name, stop = ",".join(names), Stop()
    with progress.receivers(session) as receive, stop.on_signals():
        archiver = partial(
            QueueArchiver,
            TableWriter(create_table(folder)),
            recreated=recreated,
            checkpoint=None if checkpoint is None else ConfirmedOffsets(checkpoint),
            receivers=receive,
            connect=partial(PatientConnection, sleep=stop.sleep),
        )
        archivers = [archiver(_read_options(session, each, options)) for each in names]
        try:
            held = run(archivers, every_s, stop, session.counter("{of} messages archived in {done} batches"))
            if stop.is_set() and every_s is None:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            kept = f"what was archived of {name} is kept; run the same command again to continue"
            raise CommandInterrupted(kept) from None
    done = {kind: sum(getattr(each, kind) for each in archivers) for kind in ("batches", "messages", "dropped")}
    done["dropped_from_spool"] = done.pop("dropped")
    left = {} if options.drain else asdict(held)
    return options.report(session, name, {"queue": name, "mode": options.mode, **done, **left, "out": folder})


def _read_options(session: Session, queue: str, options: ArchivingOptions) -> ReadOptions:
    from rowpost.archive.source.options import DEFAULT_BYTES, DEFAULT_ROWS, ReadOptions

    return ReadOptions(
        queue,
        session.environment,
        options.mode,
        max_rows=options.max_rows or (DEFAULT_ROWS if options.drain else _TAIL_ROWS),
        max_bytes=options.max_bytes or DEFAULT_BYTES,
        allow_consumers=options.shared,
        take_over=options.take_over,
        fail_on_data_loss=not options.accept_loss,
        connect_retry_s=ReadOptions.connect_retry_s if options.every is None else float("inf"),
    )
