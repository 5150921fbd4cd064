"""rowpost spark archive, replay, load: from queues to files, and from files to queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rowpost.cli.command import command
from rowpost.cli.completion import queue_names
from rowpost.cli.durations import parse_duration
from rowpost.cli.exits import ExitCode, Interrupted, Refused
from rowpost.cli.session import Session
from rowpost.cli.sparking import ArchiveArgument, ConfOption, MasterOption, counter, counts, local_folder, running
from rowpost.database.connection import Connection
from rowpost.errors import QueueNotFound
from rowpost.transport.directory import Directory
from rowpost.wire.address import parse_address

__all__ = ["register"]

JobOption = Annotated[
    str, typer.Option("--job", metavar="KEY", help="Names this job: however often it runs with one key, its messages are sent once.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    command(app, "archive")(archive)
    command(app, "replay")(replay)
    command(app, "load")(load)


def archive(
    session: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The audit or error queue.", autocompletion=queue_names)],
    folder: ArchiveArgument,
    drain: Annotated[bool, typer.Option("--drain/--tail", help="Take the messages out of the queue, or only read them.")] = False,
    shared: Annotated[bool, typer.Option("--shared", help="With --drain: although the queue has consumers, whose messages it takes.")] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="With --drain: what another stream left in the spool, whose checkpoint is lost.")] = False,
    every: Annotated[str | None, typer.Option("--every", metavar="SPAN", help="Go on, looking so often, such as 10s; else what is there, then end.")] = None,
    once: Annotated[bool, typer.Option("--once", help="What is there, then end: the default.")] = False,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="Messages in one batch at most.")] = 50_000,
    format: Annotated[str, typer.Option("--format", metavar="parquet|delta", help="delta needs pip install 'rowpost[delta]'.")] = "parquet",
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", metavar="DIR", help="Where Spark notes how far it is; within DIR by default.")] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Keep a queue's messages in files, by queue and day, each exactly once, however often it is stopped and started."""
    if format not in ("parquet", "delta"):
        raise Refused(f"--format is parquet or delta, not {format!r}.", ExitCode.USAGE)
    if once and every:
        raise Refused("--once and --every exclude each other.", ExitCode.USAGE)
    if (shared or take_over) and not drain:
        raise Refused("--shared and --take-over belong to --drain: reading takes nothing from anybody.", ExitCode.USAGE)
    name, span = session.name(queue), None if every is None else parse_duration(every)
    options = [("allowConsumers", "true")] * shared + [("takeOver", "true")] * take_over
    with session.deployed() as database:
        _queues(database, [name])
        with running(session, master, conf, f"archive {name}") as spark:
            from rowpost.spark.jobs import archive as jobs

            job = jobs.ArchiveJob(
                name, folder, session.environment, "drain" if drain else "tail", None if span is None else jobs.trigger_of(span),
                max_rows, format, checkpoint, tuple(options),
            )  # fmt: skip
            try:
                done = jobs.run(spark, job, counter(session, "{of} messages archived in {done} batches"))
            except KeyboardInterrupt:
                raise Interrupted(f"what was archived of {name} stands; the same command goes on from there") from None
    counts(session, {**done, "out": folder})


def replay(
    session: Session,
    folder: ArchiveArgument,
    job: JobOption,
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="Where to; none with --to-original.", autocompletion=queue_names, show_default=False)] = None,
    to_original: Annotated[bool, typer.Option("--to-original", help="Each message to the queue in which it failed.")] = False,
    where: Annotated[str | None, typer.Option("--where", metavar="SQL", help="A condition on the archive's columns, such as \"day = '2026-11-20' and exception_type like '%Timeout%'\".")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The oldest so many.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.01, help="Messages a second at most.")] = None,
    ramp: Annotated[str | None, typer.Option("--ramp", metavar="1,10,100", help="First so many, then so many, ..., then the rest.")] = None,
    pause: Annotated[str, typer.Option("--pause", metavar="SPAN", help="After each step of the ramp.")] = "10s",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Send archived messages again: chosen, at a rate, each once by the job's key. Run it again to go on after a stop."""
    if (queue is None) != to_original:
        raise Refused("Say where to: a queue, or --to-original.", ExitCode.USAGE)
    steps = _ramp(ramp)
    local_folder(folder)
    with session.deployed() as database:
        name = None if queue is None else next(iter(_queues(database, [session.name(queue)]).values()))
        with running(session, master, conf, f"replay {job}") as spark:
            from rowpost.spark.jobs import replay as jobs

            asked = jobs.Replay(job, name, where, limit, rate, steps, parse_duration(pause).total_seconds())
            try:
                done = jobs.run(spark, folder, asked, environment=session.environment, resolve_queues=lambda names: _queues(database, names),
                                progress=counter(session, "{done} of {of} messages sent"))  # fmt: skip
            except KeyboardInterrupt:
                raise Interrupted("what was sent is sent; the same command sends the rest") from None
    counts(session, done)


def _ramp(text: str | None) -> tuple[int, ...]:
    parts = [] if text is None else text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and int(part) > 0 for part in parts):
        raise Refused(f"--ramp {text!r} is no list of numbers such as 1,10,100.", ExitCode.USAGE)
    return tuple(int(part) for part in parts)


def _queues(database: Connection, names: Sequence[str]) -> Mapping[str, str]:
    """The registered queue of each address. Raises QueueNotFound for those that have none, all in one message."""
    directory = Directory()
    found = {name: directory.find(database, parse_address(name)) for name in names}
    missing = sorted(name for name, queue in found.items() if queue is None)
    if missing:
        raise QueueNotFound(f"There is no queue {' and no '.join(map(repr, missing))} here: nothing was sent or read. rowpost queue list shows those there are.")
    return {name: queue for name, queue in found.items() if queue is not None}


def load(
    session: Session,
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Parquet, CSV or JSON files.")],
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Where to.", autocompletion=queue_names)],
    spec: Annotated[Path, typer.Option("--map", metavar="FILE", help="A YAML file: which columns make id, headers and body.", exists=True, dir_okay=False)],
    job: JobOption,
    format: Annotated[str | None, typer.Option("--format", metavar="parquet|csv|json", help="Where the files' names do not tell.")] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Send the rows of files as messages, whose ids are made of the rows' keys: each once, however often it runs."""
    from rowpost.spark.archive.load_map import read_map

    mapped = read_map(spec)
    with session.deployed() as database:
        name = next(iter(_queues(database, [session.name(queue)]).values()))
        with running(session, master, conf, f"load {job}") as spark:
            from rowpost.spark.jobs import load as jobs

            done = jobs.run(spark, files, name, mapped, job, format=format, environment=session.environment)
    counts(session, done)
