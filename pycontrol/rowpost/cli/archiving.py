"""What `rowpost archive` and `rowpost spark archive` share: their options, the checks before a run, and what is printed
after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowpost.cli.completion import queue_names
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.formats import parse_duration
from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.errors import QueueNotFound, SettingsError, SparkUnavailable
from rowpost.settings.telemetry import TelemetrySettings
from rowpost.transport.directory import Directory
from rowpost.version import install_command
from rowpost.wire.address import Naming

if TYPE_CHECKING:
    from rowpost.archive.progress import Receiver

__all__ = [
    "ArchivingOptions",
    "ProgressOptions",
    "QueuesArgument",
    "check_queues",
    "missing_package",
    "registered_queues",
]

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
        session.counts(done)
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
            found: list[Receiver] = [] if self.progress is None else [JsonLines(self.progress)]
            if self.prometheus is not None:
                found.append(opened.enter_context(closing(Prometheus(*_address(self.prometheus)))))
            telemetry = session.settings.telemetry
            if telemetry is not None and telemetry.meters is not None:
                exporters = _exporters(replace(telemetry, traces=None))
                found.append(OpenTelemetry(opened.enter_context(closing(exporters)).meters))
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


def _exporters(telemetry: TelemetrySettings) -> Any:
    try:
        from rowpost.pipeline.telemetry.exporters import Exporters
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"The section telemetry needs {error.name}, which is not installed. Remove the section, or run: "
            f"{install_command('telemetry')}"
        ) from error
    return Exporters(telemetry, "rowpost spark")
