"""What `rowpost archive` and `rowpost spark archive` share: their options, the checks before a run, and what is printed
after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.printing import table
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.errors import QueueNotFound, SettingsError, SparkUnavailable
from rowpost.settings.environment import Settings
from rowpost.transport.directory import Directory
from rowpost.version import install_command
from rowpost.wire.address import Naming

if TYPE_CHECKING:
    from rowpost.archive.progress import Receiver

__all__ = [
    "ArchivingOptions", "ProgressOptions", "QueuesArgument", "check_queues", "counter", "counts", "missing_package",
    "registered_queues", "remark", "show",
]  # fmt: skip

QueuesArgument = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="The audit or error queue, or several with commas between them: audit,error.",
        autocompletion=queue_names,
    ),
]


@dataclass(frozen=True)
class ArchivingOptions:
    """What a run archives. Raises Refused for options that contradict each other."""

    drain: Annotated[
        bool, typer.Option("--drain/--tail", help="Remove the messages from the queue, or only read them.")
    ] = False
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="With --drain: allow it although the queue has consumers, whose messages are then removed."
        ),
    ] = False
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="With --drain: also archive what a drain that does not continue left in the spool."
        ),
    ] = False
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="Keep running and poll at this interval, such as 10s."),
    ] = None
    once: Annotated[
        bool, typer.Option("--once", help="Archive the messages that are there now, then exit. This is the default.")
    ] = False
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows", min=1, help="Maximum number of messages in one batch. Default: 250000; with --drain 50000."
        ),
    ] = None
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes",
            min=1,
            help=(
                "Maximum bytes of headers and bodies in one batch; a larger message is a batch of its own. Default: 1 "
                "GiB."
            ),
        ),
    ] = None
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Continue although messages that were not archived have been purged from the queue."
        ),
    ] = False
    fail_when_held: Annotated[
        bool,
        typer.Option(
            "--fail-when-held", help="Exit with 1 if open transactions hold messages back, which a later run archives."
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.once and self.every:
            raise Refused("--once and --every cannot be combined.", ExitCode.USAGE)
        if (self.shared or self.take_over) and not self.drain:
            raise Refused("--shared and --take-over need --drain: without it, messages are only read.", ExitCode.USAGE)
        if self.fail_when_held and (self.drain or self.every):
            raise Refused(
                "--fail-when-held is for a tail that ends: --drain waits for no transaction, and --every does not end.",
                ExitCode.USAGE,
            )

    @property
    def mode(self) -> str:
        """The mode of the source."""
        return "drain" if self.drain else "tail"

    @property
    def interval(self) -> timedelta | None:
        """The interval between two batches. None for a run that ends."""
        return None if self.every is None else parse_duration(self.every)

    def report(self, session: Session, queue: str, done: Mapping[str, Any]) -> ExitCode:
        """Print the counts of a run, and why messages are left. Return the exit code."""
        waiting = done.get("waiting")
        if waiting:
            session.note(_why_held(queue, done))
        counts(session, done)
        return ExitCode.FINDING if self.fail_when_held and waiting else ExitCode.OK


@dataclass(frozen=True)
class ProgressOptions:
    """Where the progress of a stream goes."""

    progress: Annotated[
        Path | None,
        typer.Option(
            "--progress",
            metavar="FILE",
            help="Append a line of JSON after each batch: rows, bytes, lag in messages and seconds.",
            show_default=False,
            dir_okay=False,
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="[HOST:]PORT",
            help="Serve the same numbers to Prometheus. The host is 127.0.0.1 by default.",
            show_default=False,
        ),
    ] = None

    @contextmanager
    def receivers(self, session: Session) -> Iterator[list[Receiver]]:
        """Open a file, Prometheus, and OpenTelemetry if the environment has telemetry.meters.

        Raises SettingsError if one of them cannot be opened.
        """
        from rowpost.archive.progress import JsonLines, OpenTelemetry, Prometheus

        with ExitStack() as opened:
            found: list[Receiver] = []
            if self.progress is not None:
                found.append(JsonLines(self.progress))
            if self.prometheus is not None:
                server = Prometheus(*_address(self.prometheus))
                opened.callback(server.close)
                found.append(server)
            meters = _meters(session.settings, opened)
            if meters is not None:
                found.append(OpenTelemetry(meters))
            yield found


_HIGHEST_PORT = 65535


def missing_package(command: str, error: ImportError) -> SparkUnavailable:
    """Return the error for a package that a command lacks. The extra that has it is named as the command."""
    package = (error.name or "a package").partition(".")[0]
    return SparkUnavailable(
        f"rowpost {command} needs {package}, which is not installed. Install it with: {install_command(command)}"
    )


def check_queues(session: Session, database: Connection, names: Sequence[str]) -> list[str]:
    """Check that the queues can be archived, and return their names as the database has them.

    Raises QueueNotFound, FeatureMissing, StreamRefused.
    """
    from rowpost.archive.source.queue_stream import describe

    registered = registered_queues(database, names, session.settings.naming).values()
    for each in registered:
        describe(database, each).check_primary()
    return list(registered)


def _why_held(queue: str, done: Mapping[str, Any]) -> str:
    held = (
        f"{done['waiting']:,} messages of {queue} are not archived yet: transactions that write to the queue were "
        "open, and a message below them may still appear."
    )
    if not done["held_by"]:
        return f"{held} They have ended; run the command again."
    names = "; ".join(_holder(**each) for each in done["held_by"])
    return (
        f"{held} Open now: {names}. A later run archives the messages when these have ended, or if none of them is "
        "open then."
    )


def _holder(process: int | None, since: str | None, application: str | None) -> str:
    who = "a prepared transaction" if process is None else f"process {process}"
    return who + (f" ({application})" if application else "") + (f" since {since}" if since else "")


def counter(session: Session, words: str) -> Callable[[int, int], None]:
    """Return a progress callback that prints a line on a terminal when the text changes."""
    said: list[str] = []

    def show(done: int, of: int) -> None:
        text = words.format(done=f"{done:,}", of=f"{of:,}")
        if session.err.is_terminal and said[-1:] != [text]:
            said.append(text)
            session.note(text)

    return show


def counts(session: Session, values: Mapping[str, object], **details: object) -> None:
    """Print the last line on stdout: one JSON document.

    The details are in it with --json, which prints nothing else.
    """
    session.document(json.loads(json.dumps({**values, **(details if session.as_json else {})}, default=str)))


def show(session: Session, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, but not with --json.

    Whole numbers, and times in milliseconds, which are floats, are aligned to the right.
    """
    if not session.as_json:
        cells = list(rows)
        numbers = [
            name for place, name in enumerate(names) if any(isinstance(row[place], int | float) for row in cells)
        ]
        table(session.out, names, [list(map(_cell, row)) for row in cells], right=numbers)


def _cell(value: object) -> object:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f} ms" if isinstance(value, float) else value


def remark(session: Session, text: str) -> None:
    """Print a text to stderr, but not with --json."""
    if not session.as_json:
        session.note(text)


def registered_queues(database: Connection, names: Sequence[str], naming: Naming | None = None) -> Mapping[str, str]:
    """Return the registered queue of each address, as `Session.stream_name` does.

    Raises QueueNotFound, which names all that are missing.
    """
    directory = Directory()
    found = {name: directory.find(database, name) for name in names}
    missing = sorted(name for name, place in found.items() if not place.registered)
    if missing:
        raise QueueNotFound(
            f"There is no queue {' and no '.join(map(repr, missing))} in this database: nothing was sent or read. To "
            "list the queues, run: rowpost queue list"
        )
    return {name: place.name if naming is None else naming.explicit(place.name) for name, place in found.items()}


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise typer.BadParameter(f"{text!r} is not of the form PORT or HOST:PORT", param_hint="--prometheus")
    return host or "127.0.0.1", int(port)


def _meters(settings: Settings, opened: ExitStack) -> Any:
    """Return OpenTelemetry's provider as the environment asks for it; None without telemetry.meters."""
    if settings.telemetry is None or settings.telemetry.meters is None:
        return None
    try:
        from rowpost.pipeline.telemetry.exporters import Exporters
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"The section telemetry needs {error.name}, which is not installed. Remove the section, or run: "
            f"{install_command('telemetry')}"
        ) from error
    exporters = Exporters(replace(settings.telemetry, traces=None), "rowpost spark")
    opened.callback(exporters.close)
    return exporters.meters
