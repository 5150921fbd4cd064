"""What the commands of `rowpost spark` share: a session of Spark while they run, a bar, and the line of counts at the end.

Spark is imported when the first of these functions is called, never before: the other commands do without it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rowpost.cli.session import Session
from rowpost.database.connection import Connection
from rowpost.errors import ArchiveNotFound, QueueNotFound, SparkUnavailable
from rowpost.transport.directory import Directory
from rowpost.wire.address import parse_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ArchiveArgument", "ConfOption", "MasterOption", "counter", "counts", "local_folder", "registered_queues", "running"]

ArchiveArgument = Annotated[str, typer.Argument(metavar="DIR", help="The archive: a folder, or a URI that Spark reads.")]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs, such as local[4], spark://…, yarn, sc://…; this machine by default.",
                 show_default=False),
]  # fmt: skip
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark, such as spark.driver.memory=4g; may be repeated. Never a secret.",
                 show_default=False),
]  # fmt: skip

_LOOK_EVERY = 0.3  # seconds
_SECRET = ("password", "pwd=", "secret", "token", "access.key", "account.key")


@contextmanager
def running(session: Session, master: str | None, conf: list[str] | None, doing: str) -> Iterator[SparkSession]:
    """A session of Spark that ends with the block, with a bar of its tasks; what goes wrong comes as rowpost's errors."""
    try:
        from rowpost.spark.explain import explained
        from rowpost.spark.session import is_connect, is_running
        from rowpost.spark.session import session as start
    except ImportError as error:
        raise _missing(error) from error
    settings = _settings(conf)
    with _bar(session) as bar:
        task, lent = bar.add_task("Starting Spark", total=None), is_running()
        spark = start(f"rowpost {doing}", master=master, config=settings)
        bar.update(task, description=doing)
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, bar, task, ended), daemon=True)
        if session.err.is_terminal and not is_connect(spark):
            watcher.start()
        try:
            with explained():
                yield spark
        except ImportError as error:
            raise _missing(error) from error
        finally:
            ended.set()
            if watcher.is_alive():
                watcher.join()
            if not lent:
                _stop(spark)


def _stop(spark: SparkSession) -> None:
    """Ends the session; one whose JVM has died has ended."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        spark.stop()


def _missing(error: ImportError) -> SparkUnavailable:
    return SparkUnavailable(f"rowpost spark needs {error.name or 'more'}, which is not installed: pip install 'rowpost[spark]'")


def _settings(conf: list[str] | None) -> dict[str, str]:
    found = {}
    for each in conf or ():
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise typer.BadParameter(f"{each!r} is not of the form KEY=VALUE", param_hint="--conf")
        if any(word in each.lower() for word in _SECRET):
            raise typer.BadParameter(
                f"{key} looks like a secret, and Spark shows its settings to everybody who lists processes: "
                "put it into the environment's variables",
                param_hint="--conf",
            )
        found[key] = value
    return found


def _bar(session: Session) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[said]}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=session.err, transient=True, disable=not session.err.is_terminal)
    add = bar.add_task
    bar.add_task = lambda description, **options: add(description, **{"said": "", **options})
    return bar


def _watch(spark: SparkSession, bar: Progress, task: Any, ended: threading.Event) -> None:
    """Shows the tasks of what Spark is doing."""
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(_LOOK_EVERY):
        stages = [stage for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage is not None]
        total, done = sum(stage.numTasks for stage in stages), sum(stage.numCompletedTasks for stage in stages)
        bar.update(task, total=total or None, completed=done, said=f"{done} of {total} tasks" if total else "")


def counter(session: Session, words: str) -> Callable[[int, int], None]:
    """A progress for jobs that say how far they are: a line on a terminal, when it changes."""
    said: list[str] = []

    def show(done: int, of: int) -> None:
        text = words.format(done=f"{done:,}", of=f"{of:,}")
        if session.err.is_terminal and said[-1:] != [text]:
            said.append(text)
            session.note(text)

    return show


def counts(session: Session, values: Mapping[str, object]) -> None:
    """The last line on stdout: one JSON document."""
    session.document(json.loads(json.dumps(values, default=str)))


def local_folder(path: str) -> None:
    """Raises ArchiveNotFound for an archive that this machine could see, and does not: before Spark is started."""
    if "://" not in path and not Path(path).is_dir():
        raise ArchiveNotFound(f"There is no archive in {path}: `rowpost spark archive QUEUE {path}` makes one.")


def registered_queues(database: Connection, names: Sequence[str]) -> Mapping[str, str]:
    """The registered queue of each address. Raises QueueNotFound for those that have none, all in one message."""
    directory = Directory()
    found = {name: directory.find(database, parse_address(name)) for name in names}
    missing = sorted(name for name, queue in found.items() if queue is None)
    if missing:
        raise QueueNotFound(f"There is no queue {' and no '.join(map(repr, missing))} here: nothing was sent or read. rowpost queue list shows those there are.")
    return {name: queue for name, queue in found.items() if queue is not None}


