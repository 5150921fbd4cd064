"""The session, and the settings that all jobs require."""

import logging
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rowpost.archive.merging import compact
from rowpost.archive.table import open_table
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.bodies.schema_files import read_schemas
from rowpost.spark.jobs import decode, erase, metrics, replay, retain, verify
from rowpost.spark.jobs.archive import ArchiveJob, archive, read_archive
from rowpost.spark.jobs.archive import run as run_archive
from rowpost.spark.jobs.reports import conversations, edges, failures
from rowpost.spark.jobs.retain import read_policy
from rowpost.spark.session import session
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.spark.archives import ArchiveMaker, archived_rows
from tests.support.spark.killing import python_of
from tests.support.spark.messages import audit_row, error_row, messages
from tests.support.workers import eventually

#: Workers of PySpark's daemon: one that plans a read, and one that has imported the data source as well.
PLANNER = "pyspark.sql.worker.plan_data_source_read"
PLANNER_OF_QUEUES = f"import pyspark_rowpost\nfrom {PLANNER} import main\n"

#: A session whose settings are those of rowpost's own sessions nowhere. Its days and its hours begin at other times than those of UTC.
USERS = {
    "spark.sql.session.timeZone": "America/St_Johns",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "10000",
}
#: Half an hour after midnight in UTC, which is the day and the month before for that user. That user's day has 25 hours.
LATE = datetime(2026, 11, 1, 0, 30, tzinfo=UTC)
NOW = LATE + timedelta(days=1)
ROWS = [
    audit_row(
        "m1", sent=LATE, body=b'{"OrderId": 1, "At": "2026-11-01T00:30:00", "Day": "2026-11-01"}', ConversationId="c1"
    ),
    audit_row("m2", sent=LATE + timedelta(minutes=29), RelatedTo="m1", ConversationId="c2"),
    audit_row("m3", sent=LATE - timedelta(days=40), body=b"x" * 2000),
    error_row("e1", at=LATE),
]
EARLY, TODAY = date(2026, 9, 22), date(2026, 11, 1)
#: What each job that writes has done with these messages, in every session.
DONE = {
    "archive": (4, [("e1", "2026-11-01"), ("m1", "2026-11-01"), ("m2", "2026-11-01"), ("m3", "2026-09-22")]),
    "metrics --live": [(datetime(2026, 9, 22, tzinfo=UTC), 1)],  # the hour of the others has not ended
    "decode": [
        ("e1", None, None, None, TODAY, True),
        ("m1", 1, LATE, TODAY, TODAY, True),
        ("m2", None, None, None, TODAY, True),
        ("m3", None, None, None, EARLY, False),
    ],
    "replay --dry-run": [3],
    "replay": (3, 2, 3),
    "retain": ([("2026-09-22", "redact", 1)], 1, 1),
    "compact": [1, 3],
    "erase": (1, 1),
    "verify": ([("audit", "2026-09-22", 1), ("audit", "2026-11-01", 2)], [], []),
}


@contextmanager
def set_by_the_user(spark: SparkSession) -> Iterator[dict[str, str | None]]:
    """Let the session have USERS, as if its user had started it. Yields all its settings."""
    before = {name: spark.conf.get(name) for name in USERS}
    try:
        for name, value in USERS.items():
            spark.conf.set(name, value)
        yield settings(spark)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def settings(spark: SparkSession) -> dict[str, str | None]:
    """Return every setting of a session: those that were set, and those of SQL that have their default."""
    return {row.key: row.value for row in spark.sql("SET -v").collect()} | dict(spark.conf.getAll)


@pytest.mark.spark_promise
def test_times_are_utc_and_written_as_every_engine_reads_them(spark):
    said = spark.sql("SELECT CAST(TIMESTAMP '2026-11-20 12:00:00' AS string) AS said").first().said

    assert said == "2026-11-20 12:00:00"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"


def test_a_session_of_the_user_gets_the_data_source_and_keeps_every_setting(spark):
    with set_by_the_user(spark) as before:
        got = session("rowpost", master="local[9]")
        of_a_thread_without_one = ThreadPoolExecutor(1).submit(session).result()

        assert settings(spark) == before and USERS.items() <= before.items()
    assert got is of_a_thread_without_one is spark


def test_an_overwrite_of_the_users_own_table_replaces_all_of_it(spark, tmp_path):
    own = str(tmp_path / "own")
    spark.createDataFrame([(1, 1), (2, 2)], "p int, n int").write.partitionBy("p").parquet(own)

    session().createDataFrame([(1, 3)], "p int, n int").write.mode("overwrite").partitionBy("p").parquet(own)

    assert [tuple(row) for row in spark.read.parquet(own).select("p", "n").collect()] == [(1, 3)]


def test_every_job_does_the_same_in_a_session_of_the_user_and_leaves_its_settings(spark, queues, tmp_path):
    made = ArchiveMaker(tmp_path / "made")
    for number in range(2):
        made.batch(number, ROWS[number::2])
    expected = frames(spark, made) | DONE

    with set_by_the_user(spark) as before:
        own = dict(spark.conf.getAll)
        spark.sparkContext.setJobDescription("the user's")
        of_the_user = session()
        for name, found in (*frames(of_the_user, made).items(), *jobs(of_the_user, queues, made)):
            assert found == expected.pop(name), name
            assert dict(spark.conf.getAll) == own, name
            assert spark.sparkContext.getLocalProperty("spark.job.description") == "the user's", name
        spark.sparkContext.setLocalProperty("spark.job.description", None)
        assert settings(spark) == before

    assert expected == {}
    said = descriptions(spark)
    assert {f"rowpost {job} {made.address}" for job in ("retain", "erase", "verify", "decode", "replay")} <= said
    assert {each.partition(" q")[0] for each in said if each.endswith(", batch 0")} >= {
        "rowpost archive",
        "rowpost metrics",
    }


def descriptions(spark: SparkSession) -> set[str]:
    """Return what Spark's web pages say of its jobs."""
    listed = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [listed.apply(place).description() for place in range(listed.size())]
    return {each.get() for each in found if each.isDefined()}


def frames(spark: SparkSession, made: ArchiveMaker) -> dict[str, list[str]]:
    """Compute each DataFrame of the jobs that only read. Returns the rows by the name of the job."""
    kept = read_archive(spark, made.address)
    hours = metrics.metrics(kept)
    found = {
        "archive(df)": archive(messages(spark, *ROWS), "audit").drop("archived_at"),
        "metrics": hours, "days": metrics.merged(hours, "day"), "months": metrics.merged(hours, "month"),
        "edges": edges(kept), "conversations": conversations(kept), "failures": failures(kept, NOW),
    }  # fmt: skip
    return {name: shown(df.drop("processing_ms_sketch", "critical_ms_sketch")) for name, df in found.items()}


def jobs(spark: SparkSession, queues, made: ArchiveMaker) -> Iterator[tuple[str, object]]:
    """Run each job that writes, and yield its name and what it has done."""
    folder = made.folder
    (folder / "schemas").mkdir()
    (folder / "schemas" / "Shop.PlaceOrder.ddl").write_text("OrderId BIGINT, At TIMESTAMP, Day DATE")
    queue, to, environment = queues.make(), queues.make(), queues.environment
    with queues.connect() as database:
        Queue(queue, database).send_many([OutgoingMessage(row[6], row[5]) for row in ROWS])
    tail = run_archive(spark, ArchiveJob(queue, str(folder / "tail"), environment))
    yield (
        "archive",
        (tail["messages"], sorted((row["message_id"], str(row["day"])) for row in archived_rows(folder / "tail"))),
    )
    live = metrics.start_live(
        spark, queue, str(folder / "live"), str(folder / "checkpoint"), environment=environment, lateness="0 seconds"
    )
    live.awaitTermination()
    yield "metrics --live", [(row["hour"], row["messages"]) for row in archived_rows(folder / "live")]

    decode.run(spark, made.address, str(folder / "decoded"), read_schemas(folder / "schemas"))
    decoded = sorted(archived_rows(folder / "decoded" / "Shop.PlaceOrder"), key=lambda row: row["message_id"])
    yield (
        "decode",
        [
            (row["message_id"], row["OrderId"], row["At"], row["body_Day"], row["day"], row["_error"] is None)
            for row in decoded
        ],
    )

    asked = replay.Replay("k", to, where="message_id <> 'e1'", ramp=(1,), pause_s=0)
    yield (
        "replay --dry-run",
        [group["messages"] for group in replay.rehearse(spark, made.address, asked, same)["would_send"]],
    )
    sent = replay.run(spark, made.address, asked, environment=environment, resolve_queues=same)
    yield "replay", (sent["messages"], sent["steps"], queues.depth(to))

    (folder / "policy.yml").write_text("rules:\n  - {queue: audit, older_than: 20d, action: redact}\n")
    changes, done = retain.run(spark, made.address, read_policy(folder / "policy.yml"), NOW, apply=True)
    yield (
        "retain",
        (
            [(str(each["day"]), each["action"], each["messages"]) for each in changes],
            done["redacted"],
            done["copies_redacted"],
        ),
    )
    compact(made.address, datetime.now(UTC))
    yield "compact", sorted(file.rows for file in open_table(made.address).files())
    receipt = erase.run(spark, made.address, erase.Erasure(where="message_id = 'm1'"), "asked for", NOW)
    yield "erase", (receipt["erased"], receipt["copies_erased"])
    report = verify.run(spark, made.address)
    yield (
        "verify",
        ([day[:3] for day in report.days], report.findings, verify.absent(spark, made.address, ['"OrderId": 1'])),
    )


def same(names):
    return {name: name for name in names}


def shown(df: DataFrame) -> list[str]:
    return sorted(map(str, df.collect()))


@pytest.mark.spark_promise
def test_a_message_goes_through_parquet_as_it_is(spark, tmp_path):
    row = ("id", None, None, True, datetime(2026, 11, 20, tzinfo=UTC), "{}", b"\x00\xff", 7)

    spark.createDataFrame([row], MESSAGE).write.parquet(str(tmp_path / "out"))

    assert spark.read.parquet(str(tmp_path / "out")).first().body == b"\x00\xff"


def test_a_worker_without_work_leaves_no_stack_on_the_terminal(tmp_path):
    (tmp_path / "pyspark_planner_of_queues.py").write_text(PLANNER_OF_QUEUES)

    assert "BrokenPipeError" in said_when_closed(PLANNER, tmp_path)
    assert said_when_closed("pyspark_planner_of_queues", tmp_path) == ""


def said_when_closed(worker: str, folder: Path) -> str:
    """Start PySpark's daemon, let it start a worker, and close the worker's socket, as Spark does after a minute without work.

    Args:
        worker: the module that the worker runs. It is imported from `folder` too.

    Returns:
        What the worker wrote to stderr.
    """
    pipe = subprocess.PIPE
    sockets = tempfile.mkdtemp()  # short: the path of a socket has room for a hundred characters
    environment = python_of(Path(__file__).parents[2])
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(folder), environment["PYTHONPATH"]]),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",  # Spark's default
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "pyspark.daemon", worker], stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    ) as daemon:
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(daemon.stdout.read(length).decode())
            (pid,) = struct.unpack("!i", connection.recv(4))
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "the worker ends")
        said = daemon.communicate()[1].decode()
    shutil.rmtree(sockets)
    return said


def test_an_error_of_a_query_is_raised_and_not_logged_too(spark):
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    records = []
    handlers = [
        (PySparkLogger.getLogger(name), logging.Handler())
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
    ]
    for logger, handler in handlers:
        handler.emit = records.append
        logger.addHandler(handler)

    for ask in (lambda: spark.range(1).select("nothing"), lambda: spark.sql("select nothing")):
        with pytest.raises(AnalysisException):
            ask().collect()

    for logger, handler in handlers:
        logger.removeHandler(handler)
    assert records == []
