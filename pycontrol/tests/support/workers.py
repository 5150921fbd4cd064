"""A shop with one queue under test, and supervisors for it; shared by the tests of workers."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from rowpost.settings.environment import QueueSettings, Settings, SupervisorSettings, WorkerSettings
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from rowpost.workers.supervision.supervisor import Supervisor
from tests.support.fork_server import FORK_SERVER

__all__ = ["Refusing", "Running", "Shop", "concurrent", "eventually", "running", "shop", "supervisor_process"]

DEADLINE = 30.0  # seconds

#: for tests that need handlers to run concurrently
concurrent = pytest.mark.usefixtures("needs_readpast")


def eventually(condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> object:
    """Wait until the condition is true; return its value."""
    end = time.monotonic() + deadline
    while not (said := condition()):
        assert time.monotonic() < end, f"{what}: not within {deadline} s"
        time.sleep(0.01)
    return said


class Refusing:
    """Refuses connections of workers and supervisors to a PostgreSQL database until the block ends."""

    def __init__(self, url: str) -> None:
        self.name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        self.admin = psycopg.connect(psycopg.conninfo.make_conninfo(url, dbname="postgres"), autocommit=True)

    def __enter__(self):
        self.admin.execute(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS false")
        self.admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            " AND (application_name LIKE 'rowpost worker%%' OR application_name = 'rowpost supervisor')",
            (self.name,),
        )

    def __exit__(self, *_):
        self.admin.execute(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS true")
        self.admin.close()


def running(path: Path) -> int:
    """Return how many handlers wait for this file."""
    return len(list(path.parent.glob(f"{path.name}.*")))


class Running:
    """Runs a supervisor in a thread; stops it when the block ends."""

    def __init__(self, settings: Settings, **options: object) -> None:
        self.events: list[events.Event] = []
        self.supervisor = Supervisor(settings, self.events.append, **options)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.supervisor.run()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.supervisor.stop()
            self._thread.join(DEADLINE)
        if self.alive:
            self.supervisor.stop()
            self._thread.join(DEADLINE)
        assert not self.alive

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ended(self) -> BaseException | None:
        """Wait until run() has ended; return the error that it raised, if any."""
        self._thread.join(DEADLINE)
        assert not self.alive
        return self._error

    def seen(self, kind: type[events.Event], queue: str | None = None) -> list[events.Event]:
        return [e for e in tuple(self.events) if isinstance(e, kind) and queue in (None, e.queue)]

    def until(self, condition: Callable[[], object], what: str, deadline: float = DEADLINE) -> object:
        """Wait until the condition is true; if it does not become true, fail with the latest events."""
        with self._explained():
            return eventually(condition, what, deadline)

    def idle(self, deadline: float = DEADLINE) -> None:
        """Wait until all queues are empty and all workers idle."""
        self.until(lambda: self.supervisor.snapshot().idle, "the queue is empty and all are idle", deadline)

    def workers(self, queue: str) -> int:
        return self.supervisor.snapshot().queue(queue).workers

    @contextmanager
    def _explained(self):
        try:
            yield
        except AssertionError as error:
            shown = [e for e in self.events if not isinstance(e, events.Handled | events.Peeked)][-20:]
            raise AssertionError(f"{error}\n{self.supervisor.snapshot()}\n" + "\n".join(map(repr, shown))) from None


class Shop:
    """A separate queue, the table `handled` that handlers write to, and the empty queue `error`."""

    def __init__(self, target, queue: Queue, sql, make_queue, *, lease: bool = False) -> None:
        self.target, self.queue, self.sql, self.make_queue = target, queue, sql, make_queue
        self.lease = lease
        self.name = queue.name

    def settings(self, handler: str = "note", *, others: tuple[QueueSettings, ...] = (), **options) -> Settings:
        """Return settings with a worker for the queue; options of the supervisor and of the worker are given by name."""
        of_supervisor = {
            "stop_timeout",
            "breaker_seconds",
            "idle_timeout",
            "idle_workers",
            "error_queue",
            "wake_up",
            "delayed_lateness",
        }
        supervisor = {key: options.pop(key) for key in list(options) if key in of_supervisor}
        return replace(
            self.target.settings,
            queues=(self.worked(self.name, handler, **options), *others),
            supervisor=SupervisorSettings(**({"idle_timeout": 0.3} | supervisor)),
        )

    def worked(
        self, name: str, handler: str = "note", module: str = "tests.support.handlers", **options
    ) -> QueueSettings:
        """Return the settings of a queue with a worker."""
        return QueueSettings(
            name,
            lease=self.lease,
            worker=WorkerSettings(f"{module}:{handler}", **({"peek_delay": 0.1} | options)),
        )

    def run(self, handler: str = "note", **options) -> Running:
        """Return a supervisor for the queue, as a context manager."""
        arguments = {key: options.pop(key) for key in ("breaker", "spawn", "monitor", "tasks") if key in options}
        return Running(self.settings(handler, **options), **arguments)

    @property
    def address(self) -> str:
        """The queue's address in canonical form."""
        return self.queue.database.canonical(parse_address(self.name))

    def send(self, count: int, body: bytes | None = None) -> None:
        self.queue.send_many(OutgoingMessage(b"%d" % n if body is None else body) for n in range(count))

    def handled(self) -> int:
        """Return how many messages committed together with what their handler wrote."""
        return self.sql.value("SELECT COUNT(*) FROM handled")

    def handled_twice(self) -> int:
        return self.sql.value("SELECT COUNT(*) - COUNT(DISTINCT id) FROM handled")

    def depth(self, queue: str | None = None) -> int:
        """Return the number of messages that wait in the queue; counted without waiting for locks."""
        return Queue(queue or self.name, self.queue.database).peek(10_000)

    def errors(self) -> list:
        return Queue("error", self.queue.database).browse(100)


@pytest.fixture
def shop(target, make_queue, sql) -> Shop:
    """Return a shop with empty tables."""
    sql.run("DROP TABLE IF EXISTS handled")
    text = "varchar(40)"
    binary = "bytea" if target.settings.engine == "postgresql" else "varbinary(max)"
    sql.run(f"CREATE TABLE handled (id {text} NOT NULL, body {binary} NULL)")
    sql.empty("error")
    return Shop(target, make_queue(), sql, make_queue)


@contextmanager
def supervisor_process(
    shop: Shop,
    handler: str,
    limit: int = 2,
    stop_timeout: float = 30.0,
    path: tuple[Path, ...] = (),
    *,
    group: bool = False,
    module: str = "tests.support.handlers",
    concurrency: int = 1,
    wrapper: tuple[str, ...] = (),
):
    """Run a supervisor in a separate process, as the command line does; it is killed at the end if it still runs.

    `path` are folders that the process and its workers import from first. With `group`, it has a process group of its own.
    `wrapper` is a command that starts it.
    """
    program = (
        "import sys, json; from dataclasses import replace; from rowpost.settings.environment import *;"
        "from rowpost.workers.supervision.supervisor import Supervisor; a = json.loads(sys.argv[1]);"
        "w = WorkerSettings(a['handler'], limit=a['limit'], concurrency=a['concurrency'], peek_delay=0.1);"
        "s = Settings(engine=a['engine'], url=a['url'], queues=(QueueSettings(a['queue'], worker=w),),"
        "supervisor=SupervisorSettings(stop_timeout=a['stop_timeout']));"
        # no `if __name__ == '__main__'`: workers must not run the caller's program
        "Supervisor(s, lambda event: print(repr(event), flush=True)).run()"
    )

    arguments = json.dumps(
        {
            "engine": shop.target.settings.engine,
            "url": shop.target.url,
            "queue": shop.name,
            "handler": f"{module}:{handler}",
            "limit": limit,
            "concurrency": concurrency,
            "stop_timeout": stop_timeout,
        }
    )
    python_path = os.pathsep.join([*map(str, path), *filter(None, sys.path)])
    apart = bool(path or wrapper)
    start = subprocess.Popen if apart else FORK_SERVER.start
    process = start(
        [*wrapper, *([sys.executable] if apart else []), "-c", program, arguments],
        env={**os.environ, "PYTHONPATH": python_path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=group,
    )
    try:
        yield process
    except AssertionError as error:
        if process.poll() is None:
            raise
        said = "".join(process.stdout.readlines()[-20:])
        raise AssertionError(
            f"{error}\nThe supervisor's process had ended with {process.returncode}, and said:\n{said}"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.stdout.close()
        process.wait()
