"""One embedded server for the whole run, and a fresh database for each workload."""

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
BODY = b'{"Number":1,"Text":"' + b"x" * 490 + b'"}'  # 512 bytes, JSON, for the peers want JSON
HEADERS = {
    "NServiceBus.MessageId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.EnclosedMessageTypes": "Bench.Work, Bench",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
}
#: rows into a queue without a round trip each: queue, headers, body, number
FILL = 'INSERT INTO "{}" (id, headers, body) SELECT gen_random_uuid(), %s, %s FROM generate_series(1, %s)'


class Place:
    """A database of its own, where rowpost is deployed."""

    def __init__(self, url: str, name: str, *queues: str | QueueSettings) -> None:
        self.url = re.sub(r"^(postgres(?:ql)?://[^/]*/)[^?]*", rf"\g<1>{name}", url)
        self.database = connect_url("postgresql", self.url, "rowpost benchmark")
        self.sql = self.database.driver_connection.execute
        self.sql("SET lock_timeout = '60s'")  # who holds a table too long fails alone, and the run goes on
        self.settings = Settings(
            url=self.url,
            queues=tuple(each if isinstance(each, QueueSettings) else QueueSettings(each) for each in (*queues, "error")),
            supervisor=SupervisorSettings(maintenance_every=0.0),
        )
        apply(self.database, plan(self.settings))

    def value(self, text: str):
        return self.sql(text).fetchone()[0]

    def queue(self, name: str) -> Queue:
        return Queue(name, self.database)

    def fill(self, queue: str, number: int, body: bytes = BODY, headers: str | None = None) -> None:
        """So many messages, all alike."""
        self.sql(FILL.format(queue), [headers or encode_headers(HEADERS), body, number])

    def tidy(self, *tables: str) -> None:
        """The same state before each measurement: no dead rows, statistics as of now, nothing left to write."""
        self.sql(f"VACUUM ANALYZE {', '.join(tables)}")
        self.sql("CHECKPOINT")


class Server:
    """The embedded PostgreSQL, durable as it comes."""

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
            raise SystemExit(f"these settings are not durable, and figures would mean nothing: {self.durable}")

    def cpu(self) -> float:
        """Seconds of processor time of the whole server so far, with the backends that have ended."""
        return sum(cpu_of(pid) for pid in tree(self._postmaster))

    def stop(self) -> None:
        embedded.stop(self.folder)

    @contextmanager
    def place(self, name: str, *queues: str | QueueSettings) -> Iterator[Place]:
        """A new database, which is gone after it."""
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
    """What the condition said when it became true. Raises TimeoutError."""
    end = time.monotonic() + deadline
    while not (said := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline:.0f} s")
        time.sleep(every)
    return said


def cpu_of(pid: int) -> float:
    """Seconds of processor time of one process so far, and of its children that have ended; 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, stat[11:15])) / TICK


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
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
