"""A PostgreSQL server of its own whose log is decoded, with queues that have publications, and streams that read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from tests.support.postgres import Server
from tests.support.spark.outages import own_server
from tests.support.spark.queues import Queues

__all__ = ["LOGICAL", "LogRun", "drop_slots", "log_server", "numbered", "pass_through", "slots"]

LOGICAL = "-c wal_level=logical -c max_replication_slots=50 -c max_prepared_transactions=10"


@contextmanager
def log_server(spark: SparkSession | None = None, more: str = "") -> Iterator[tuple[Server, Queues]]:
    """Start a server whose wal_level is logical."""
    with own_server(spark, f"{LOGICAL} {more}") as made:
        yield made


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def pass_through(queues: Queues, queue: str, bodies: Iterable[bytes]) -> None:
    """Send each message in a transaction of its own, and remove it in the next one, as a worker does."""
    with psycopg.connect(queues.url, autocommit=True) as connection:
        for body in bodies:
            connection.execute(f'INSERT INTO public."{queue}" (id, headers, body) VALUES (gen_random_uuid(), %s, %s)', ("{}", body))
            connection.execute(f'DELETE FROM public."{queue}"')


def slots(queues: Queues) -> dict[str, str]:
    """Return the confirmed position of each slot."""
    with psycopg.connect(queues.url, autocommit=True) as connection:
        return dict(connection.execute("SELECT slot_name::text, confirmed_flush_lsn::text FROM pg_replication_slots").fetchall())


def drop_slots(queues: Queues) -> None:
    with psycopg.connect(queues.url, autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_type = 'logical'")


class LogRun:
    """Runs a stream with mode=log until it has read all messages. Calls return the bodies of all runs so far, as numbers."""

    def __init__(self, queues: Queues, folder: Path) -> None:
        self.queues, self.folder, self.batches = queues, folder, []

    def __call__(self, queue: str = "", checkpoint: str = "checkpoint", out: str = "out", **options: object) -> list[int]:
        named = {"queue": queue} if queue else {}
        reader = self.queues.spark.readStream.format("rowpost").option("environment", options.pop("environment", self.queues.environment))
        for name, value in {**named, "mode": "log", **options}.items():
            reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
        query = (
            reader.load().writeStream.format("parquet").option("path", str(self.folder / out))
            .option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        self.batches = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
        return self.bodies(out)

    def bodies(self, out: str = "out") -> list[int]:
        rows = self.queues.spark.read.schema("body binary").parquet(str(self.folder / out)).collect()
        return sorted(int(bytes(row.body)) for row in rows)
