"""Create queues for the Spark tests, in a separate database that an environment file names."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.spark.archives import archived_rows

__all__ = ["Queues"]


@dataclass
class Queues:
    """Creates queues, and Spark readers of them.

    `ahead` is the number of queues that are made at once: most of what one costs is the comparison of the database with its plan.
    """

    url: str = field(repr=False)
    folder: Path
    engine: str = "postgresql"
    spark: SparkSession | None = None
    #: what the environment file says
    named_url: str = field(default='"${ROWPOST_SPARK_TEST_URL}"', repr=False)
    ahead: int = 1
    _ready: list[str] = field(default_factory=list)

    @property
    def environment(self) -> str:
        """The path of the environment file. Its URL is in a variable, as a secret must be."""
        path = self.folder / "sparktests.yml"
        if not path.exists():
            path.write_text(f"engine: {self.engine}\nurl: {self.named_url}\nqueues: {{}}\n")
        return str(path)

    def connect(self) -> Connection:
        return connect_url(self.engine, self.url, "rowpost spark tests")

    def make(self, name: str | None = None) -> str:
        if name is None and self._ready:
            return self._ready.pop()
        first, *others = [name] if name else [f"q{uuid.uuid4().hex[:8]}" for _ in range(self.ahead)]
        with self.connect() as database:
            made = tuple(QueueSettings(each, delayed=False) for each in (first, *others))
            apply(database, plan(Settings(engine=self.engine, url=self.url, queues=made)))
        self._ready += others
        return first

    def send(self, queue: str, bodies: Iterable[bytes | None], headers: str = "{}") -> None:
        with self.connect() as database:
            Queue(queue, database).send_many([OutgoingMessage(body, headers) for body in bodies])

    def depth(self, queue: str) -> int:
        with self.connect() as database:
            return database.driver_connection.execute(f'SELECT count(*) FROM public."{queue}"').fetchone()[0]

    def spooled(self, queue: str) -> int:
        with self.connect() as database:
            return len(database.call("read_spool", queue, above=0, upto=2**62))

    def archived(self, place: object) -> list[int]:
        """Return the numbers that the bodies in an archive are."""
        return sorted(int(row["body"]) for row in archived_rows(place, "body"))

    def read(self, queue: str, **options: object) -> DataFrame:
        return self.reader(self.spark.read, queue, **options).load()

    def stream(self, queue: str, **options: object) -> DataFrame:
        return self.reader(self.spark.readStream, queue, **options).load()

    def reader(self, reader, queue: str, **options: object):
        reader = reader.format("rowpost").option("queue", queue).option("environment", self.environment)
        for name, value in options.items():
            reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
        return reader
