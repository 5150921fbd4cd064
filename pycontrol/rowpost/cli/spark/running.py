"""What the commands of `rowpost spark` share: a Spark session, a progress bar, and the final line of counts.

Spark is imported when the first of these functions is called, so that all other commands start without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rowpost.cli.archiving import ProgressOptions, missing_package
from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.session import Session
from rowpost.errors import ArchiveNotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rowpost.spark.progress import Receiver

__all__ = ["ArchiveArgument", "SparkOptions", "StreamOptions", "imported", "local_folder", "result_folder", "running"]

ArchiveArgument = Annotated[
    str, typer.Argument(metavar="DIR", help="The archive: a folder, or a URI that Spark can read.")
]
_PROGRESS_INTERVAL_S = 0.3
_SECRET = ("password", "pwd=", "secret", "token", "access.key", "account.key")


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark runs, and its settings."""

    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="Where Spark runs, such as local[4], spark://…, yarn or sc://…. Default: this machine.",
            show_default=False,
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="KEY=VALUE",
            help="A Spark setting, such as spark.driver.memory=4g. May be repeated. Do not pass secrets.",
            show_default=False,
        ),
    ] = None

    @property
    def settings(self) -> dict[str, str]:
        """The settings by key. Raises BadParameter for what is not KEY=VALUE, and for a secret."""
        found = {}
        for each in self.conf or ():
            key, equals, value = each.partition("=")
            if not (key and equals):
                raise typer.BadParameter(f"{each!r} is not of the form KEY=VALUE", param_hint="--conf")
            if any(word in each.lower() for word in _SECRET):
                raise typer.BadParameter(
                    f"{key} looks like a secret. Spark shows its settings to everyone who can list processes. Pass it "
                    "as an environment variable instead",
                    param_hint="--conf",
                )
            found[key] = value
        return found


@dataclass(frozen=True)
class StreamOptions(ProgressOptions):
    """Where the progress of a stream goes, Spark's own web pages among it."""

    ui: Annotated[
        int | None,
        typer.Option(
            "--ui",
            metavar="PORT",
            help="Serve Spark's web pages at this port. They have no login.",
            min=1,
            max=65535,
            show_default=False,
        ),
    ] = None

    def in_spark(self, spark: SparkSession) -> list[Receiver]:
        """Return what shows the progress in Spark's own metrics, if its web pages are asked for."""
        from rowpost.spark.progress import SparkMetrics
        from rowpost.spark.session import is_connect

        return [] if self.ui is None or is_connect(spark) else [SparkMetrics(spark)]


@contextmanager
def running(
    session: Session, options: SparkOptions, doing: str, archive: str | None = None, *, ui: int | None = None
) -> Iterator[SparkSession]:
    """Run the block with a Spark session and a progress bar. Spark's errors are raised as rowpost's errors.

    A session that existed before the block is not stopped.

    Args:
        archive: is checked before Spark is started, as `local_folder` does.
        ui: the port of Spark's web pages, which are off without it.
    """
    if archive is not None:
        local_folder(archive)
    with imported():
        from py4j.protocol import Py4JError

        from rowpost.spark.broken_pipes import hide_end_of_counters
        from rowpost.spark.describing import described
        from rowpost.spark.session import is_connect, is_running
        from rowpost.spark.session import session as start
    # py4j prints stack traces: of Ctrl-C, which ends a command well, and of errors, which the command prints in words
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # py4j logs to it by itself
    settings = options.settings
    if ui is not None:
        settings |= {"spark.ui.enabled": "true", "spark.ui.port": str(ui), "spark.sql.streaming.metricsEnabled": "true"}
    with _bar(session) as bar:
        task, existed = bar.add_task("Starting Spark", total=None, said=""), is_running()
        spark = start(f"rowpost {doing}", master=options.master, config=settings)
        bar.update(task, description=doing)
        if not is_connect(spark) and not existed:
            hide_end_of_counters(spark)
        if ui is not None and not is_connect(spark):
            session.note(
                "Spark's web pages: "
                f"{spark.sparkContext.uiWebUrl or 'not available, because this session started without them'}"
            )
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, bar, task, ended), daemon=True)
        if session.err.is_terminal and not is_connect(spark):
            watcher.start()
        try:
            with imported(), described(spark, f"rowpost {doing}"):
                yield spark
        finally:
            ended.set()
            if watcher.is_alive():
                watcher.join()
            if not existed:
                with suppress(Py4JError, OSError):  # if its JVM has died, it is already stopped
                    spark.stop()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


@contextmanager
def imported() -> Iterator[None]:
    """Import Spark's modules and use them in the block, for a command that needs no session."""
    try:
        from rowpost.spark.explain import explained

        with explained():
            yield
    except ImportError as error:
        raise missing_package("spark", error) from error


def _bar(session: Session) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=session.err, transient=True, disable=not session.err.is_terminal)


def _watch(spark: SparkSession, bar: Progress, task: Any, ended: threading.Event) -> None:
    """Show the number of Spark tasks in the progress bar."""
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(_PROGRESS_INTERVAL_S):
        stages = [stage for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage is not None]
        total, done = sum(stage.numTasks for stage in stages), sum(stage.numCompletedTasks for stage in stages)
        bar.update(task, total=total or None, completed=done, said=f"{done} of {total} tasks" if total else "")


def local_folder(path: str, *, is_new: bool = False) -> None:
    """Check, before Spark is started, that all libraries read the address of an archive alike, and that it exists if it
    is a local folder and not new.

    Raises ArchiveNotFound, SettingsError.
    """
    with imported():
        from rowpost.archive.address import delta_uri, local_path

    delta_uri(path)
    if not is_new and (folder := local_path(path)) is not None and not Path(folder).is_dir():
        raise ArchiveNotFound(f"There is no archive in {path}. To make one, run: rowpost spark archive QUEUE {path}")


def result_folder(path: str | None) -> None:
    """Check that a result may be written to a folder, whose content it replaces. Raises Refused, SettingsError."""
    if path is None:
        return
    with imported():
        from rowpost.archive.address import delta_uri
        from rowpost.archive.folder import ArchiveFolder

        delta_uri(path)
        if not ArchiveFolder(path).may_be_replaced():
            raise Refused(
                f"{path} holds something else than an earlier result, which would be deleted. Name an empty or a new "
                "folder.",
                ExitCode.USAGE,
            )
