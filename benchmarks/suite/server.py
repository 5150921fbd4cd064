"""Provide one embedded server for the whole run, and a new database for each workload."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rowpost.database import embedded
from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.environment import QueueSettings, Settings, SupervisorSettings
from rowpost.transport.queue import Queue
from rowpost.wire.message import encode_headers

__all__ = ["BODY", "FILL", "HEADERS", "Place", "Server", "cpu_of", "tree", "wait_until"]

DURABLE = ("fsync", "full_page_writes", "synchronous_commit")
TICK = os.sysconf("SC_CLK_TCK")
BODY = b'{"Number":1,"Text":"' + b"x" * 490 + b'"}'  # 512 bytes of JSON, because the peers require JSON
HEADERS = {
    "NServiceBus.MessageId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.EnclosedMessageTypes": "Bench.Work, Bench",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
}
#: Inserts messages in one statement. Parameters: queue; headers, body, number.
FILL = 'INSERT INTO "{}" (id, headers, body) SELECT gen_random_uuid(), %s, %s FROM generate_series(1, %s)'


class Place:
    """A separate database with a deployment of rowpost."""

    #: the backends of connected workers
    connected = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'rowpost worker%'"

    def __init__(self, url: str, name: str, *queues: str | QueueSettings) -> None:
        self.url = re.sub(r"^(postgres(?:ql)?://[^/]*/)[^?]*", rf"\g<1>{name}", url)
        self.database = connect_url("postgresql", self.url, "rowpost benchmark")
        self.sql = self.database.driver_connection.execute
        self.sql("SET lock_timeout = '60s'")  # a blocked workload fails, and the run continues
        self.settings = Settings(
            url=self.url,
            queues=tuple(
                each if isinstance(each, QueueSettings) else QueueSettings(each) for each in (*queues, "error")
            ),
            supervisor=SupervisorSettings(maintenance_every=0.0),
        )
        apply(self.database, plan(self.settings))

    def value(self, text: str):
        return self.sql(text).fetchone()[0]

    def queue(self, name: str) -> Queue:
        return Queue(name, self.database)

    def fill(self, queue: str, number: int, body: bytes = BODY, headers: str | None = None) -> None:
        """Store `number` equal messages."""
        self.sql(FILL.format(queue), [headers or encode_headers(HEADERS), body, number])

    def tidy(self, *tables: str) -> None:
        """Create the same state before each measurement: no dead rows, current statistics, no dirty pages."""
        self.sql(f"VACUUM ANALYZE {', '.join(tables)}")
        self.sql("CHECKPOINT")


class Server:
    """The embedded PostgreSQL with its default, durable settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = embedded.start(folder)
        self.log = folder / "postgresql" / "log"
        self._postmaster = int((folder / "postgresql" / "postmaster.pid").read_text().split()[0])
        with connect_url("postgresql", self.url) as database:
            row = database.driver_connection.execute
            self.version = row("SHOW server_version").fetchone()[0]
            self.durable = {name: row(f"SHOW {name}").fetchone()[0] for name in DURABLE}
        if set(self.durable.values()) != {"on"}:
            raise SystemExit(
                f"The server is not durable, so its figures cannot be compared: {self.durable}. Remove the settings that turn these off."
            )

    def cpu(self) -> float:
        """Return the processor time of the whole server so far in seconds, including ended backends."""
        return sum(cpu_of(pid) for pid in tree(self._postmaster))

    def stop(self) -> None:
        embedded.stop(self.folder)

    @contextmanager
    def place(self, name: str, *queues: str | QueueSettings) -> Iterator[Place]:
        """Create a database for the block, and drop it afterwards."""
        with connect_url("postgresql", self.url) as database:
            database.driver_connection.execute(f"DROP DATABASE IF EXISTS bench_{name} WITH (FORCE)")
            database.driver_connection.execute(f"CREATE DATABASE bench_{name}")
            place = Place(self.url, f"bench_{name}", *queues)
            try:
                yield place
            finally:
                place.database.close()
                database.driver_connection.execute(f"DROP DATABASE bench_{name} WITH (FORCE)")


def wait_until(condition: Callable[[], object], what: str, deadline: float = 120.0, every: float = 0.005) -> object:
    """Wait until a condition is true, and return its value. Raises TimeoutError after `deadline` seconds."""
    end = time.monotonic() + deadline
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline:.0f} s")
        time.sleep(every)
    return value


def cpu_of(pid: int) -> float:
    """Return the processor time of a process and its ended children in seconds; 0 if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, stat[11:15])) / TICK


def tree(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found
