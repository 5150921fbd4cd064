"""A stream outlives restarts and failovers of its server: it waits, says so once, and continues with nothing lost or doubled."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rowpost.archive.source.connection import PatientConnection
from rowpost.archive.source.options import ReadOptions
from rowpost.cli.app import app
from rowpost.errors import DatabaseUnavailable
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.options import read_options
from rowpost.spark.source.source import QueueSource
from tests.support.spark.engine import Engine
from tests.support.spark.killing import ROWPOST, python_of
from tests.support.spark.pages import free_port, read
from tests.support.spark.queues import Queues
from tests.support.standby import pair  # noqa: F401 -- a fixture
from tests.support.workers import eventually

PYCONTROL = Path(__file__).parents[3]
FIRST, SECOND = range(50), range(50, 80)


@pytest.fixture
def stream(served, tmp_path):
    """Start streams that poll without a pause. Returns a query; its `bodies()` are those that it has written."""
    queries = []

    def start(queues, queue, **options):
        out = tmp_path / "out"
        writer = queues.stream(queue, **options).writeStream.format("parquet").option("path", str(out))
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="0 seconds").start()
        queries.append(query)
        query.bodies = lambda: sorted(int(bytes(row.body)) for row in queues.spark.read.parquet(str(out)).collect())
        return query

    yield start
    for query in queries:
        query.stop()


def numbered(numbers):
    return [b"%d" % number for number in numbers]


@pytest.mark.parametrize(("mode", "stop"), [("tail", "fast"), ("drain", "immediate")])
def test_a_stream_outlives_a_restart_of_its_server(served, stream, mode, stop):
    server, queues = served
    queue = queues.make()
    query = stream(queues, queue, mode=mode)
    query.processAllAvailable()
    queues.send(queue, numbered(FIRST))
    query.processAllAvailable()

    server.stop(stop)
    query.awaitTermination(2)  # the stream polls all the time
    while_down = query.isActive
    server.start()
    queues.send(queue, numbered(SECOND))
    query.processAllAvailable()

    assert while_down
    assert query.bodies() == [*FIRST, *SECOND]
    assert queues.depth(queue) == (0 if mode == "drain" else 80)


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_stream_outlives_a_failover_to_the_standby(pair, tmp_path, mode):  # noqa: F811
    hosts = ",".join(re.search("host=(.+)", each)[1] for each in (pair.url, pair.url.replace("/psocket", "/ssocket")))
    url = f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write"
    queues = Queues(url, tmp_path, named_url=f'"{url}"')
    queue, engine = queues.make(), Engine(queues.environment)
    reader = engine.reader(queue=queue, mode=mode)
    queues.send(queue, numbered(FIRST))
    engine.batch(reader)

    pair.fail_over()
    queues.send(queue, numbered(SECOND))
    engine.batch(reader)
    reader.stop()

    assert sorted(int(row["body"]) for row in engine.found["checkpoint"]) == [*FIRST, *SECOND]


def test_a_stream_that_waits_for_its_server_can_be_stopped(served, stream):
    server, queues = served
    queue = queues.make()
    query = stream(queues, queue)
    query.processAllAvailable()

    server.stop()
    query.awaitTermination(1)
    stopping = threading.Thread(target=query.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    stopped = not stopping.is_alive()
    server.start()
    stopping.join(60)

    assert stopped


def test_a_stream_ends_if_the_server_stays_away_for_longer_than_it_waits(served, stream):
    server, queues = served
    queue = queues.make()
    query = stream(queues, queue, connectRetrySeconds=0.3)
    query.processAllAvailable()

    server.stop()
    try:
        with pytest.raises(Exception, match=r"waited 0.3 seconds for the server of the queue .*connectRetrySeconds"):
            query.awaitTermination(60)
    finally:
        server.start()


@pytest.mark.parametrize("mode", ["tail", "drain"])
@pytest.mark.parametrize("columns", ["body", "all"])
def test_a_range_whose_server_restarts_in_the_middle_is_read_on(served, mode, columns):
    server, queues = served
    queue = queues.make()
    options = {"queue": queue, "environment": queues.environment, "mode": mode}
    queues.send(queue, [b"%d" % number + bytes(20_000) for number in range(400)])
    options |= {"maxBytesPerBatch": "100000", "minPartitions": "1"}
    schema = MESSAGE if columns == "all" else type(MESSAGE)([MESSAGE["body"]])
    reader = QueueSource(options).streamReader(schema)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (part,) = reader.partitions(start, end)

    batches = reader.read(part)
    found = [next(batches)]
    server.stop()
    server.start()
    found += batches
    reader.stop()

    rows = pa.Table.from_batches(found)
    assert rows.column_names == schema.fieldNames()
    assert sorted(int(bytes(body).rstrip(b"\0")) for body in rows["body"].to_pylist()) == list(range(400))


# ---------------------------------------------------------------------------------------------- what is said, and when
class Clock:
    def __init__(self):
        self.now, self.slept = 0.0, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def outage():
    clock, said = Clock(), []
    made = PatientConnection(ReadOptions("audit", connect_retry_s=300), said.append, clock.sleep, lambda: clock.now)
    made.clock, made.said = clock, said
    return made


def test_waits_grow_from_a_tenth_of_a_second_to_half_a_minute_and_are_said_once(outage):
    for _ in range(13):
        outage.failed(DatabaseUnavailable("the server is starting up"))
    outage.succeeded()
    outage.succeeded()

    assert outage.clock.slept[:3] == [0.1, 0.2, 0.4] and outage.clock.slept[-1] == 30
    assert len(outage.said) == 2
    assert (
        "waiting for the server since" in outage.said[0]
        and "starting up" in outage.said[0]
        and "audit" in outage.said[0]
    )
    assert "back" in outage.said[1]


def test_a_connection_that_was_lost_and_is_replaced_at_once_is_not_mentioned(outage):
    outage.failed(DatabaseUnavailable("terminated"))
    outage.succeeded()

    assert (outage.said, outage.clock.slept) == ([], [])


def test_a_server_that_stays_away_is_an_error_after_the_limit(outage):
    with pytest.raises(DatabaseUnavailable, match=r"no route.*waited 300 seconds"):
        while True:
            outage.failed(DatabaseUnavailable("no route"))

    assert sum(outage.clock.slept) == 300


def test_the_limit_is_an_option():
    assert read_options({"queue": "a"}, stream=True).connect_retry_s == 300
    assert read_options({"queue": "a", "connectRetrySeconds": "2.5"}, stream=True).connect_retry_s == 2.5


# ---------------------------------------------------------------------------------------------- the command, restarted at random
def archiving(command, log):
    """Start `rowpost spark archive --every`, with its output in a file."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-c", ROWPOST, *command, "--every", "200ms", "--max-rows", "500", "--conf", "spark.driver.memory=1g", "--master", "local[2]"],
            env=python_of(PYCONTROL), stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip


@contextmanager
def sending(queues, queue, unless):
    """Send ten messages again and again, while a lock is free. Yields the numbers that were sent."""
    sent, done = [], threading.Event()

    def send():
        while not done.is_set():
            with unless:
                queues.send(queue, numbered(range(len(sent), len(sent) + 10)))
                sent.extend(range(len(sent), len(sent) + 10))
            time.sleep(0.05)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield sent
    finally:
        done.set()
        sender.join()


SLOW = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("mode", "restarts"), [("drain", 1), pytest.param("tail", 10, marks=SLOW), pytest.param("drain", 10, marks=SLOW)]
)
def test_an_archive_outlives_restarts_shows_its_progress_and_is_stopped_quietly_within_a_batch(
    served, tmp_path, mode, restarts
):
    metrics, ui = free_port(), free_port()
    log, out, checkpoint = tmp_path / "log", tmp_path / "out", tmp_path / "c"
    server, queues = served
    queue = queues.make()
    server_up = threading.Lock()
    command = [
        "--env",
        queues.environment,
        "spark",
        "archive",
        queue,
        str(out),
        f"--{mode}",
        "--checkpoint",
        str(checkpoint),
    ]

    def batches():
        return max((int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()), default=-1)

    def grow():
        before = batches()
        eventually(
            lambda: batches() > before or process.poll() is not None, f"the archive grows; {log.read_text()}", 120
        )

    process = archiving([*command, "--prometheus", str(metrics), "--ui", str(ui)], log)
    try:
        with sending(queues, queue, server_up) as sent:
            for number in range(restarts):
                grow()
                with server_up:
                    server.stop(("immediate", "fast")[number % 2])
                    time.sleep((0, 1, 3)[number % 3])
                    server.start()
            grow()
        still_runs = process.poll() is None
        numbers, page = read(f"http://127.0.0.1:{metrics}/metrics"), read(f"http://127.0.0.1:{ui}/StreamingQuery/")
        jobs, gauges = (
            read(f"http://127.0.0.1:{ui}/jobs/"),
            json.loads(read(f"http://127.0.0.1:{ui}/metrics/json/"))["gauges"],
        )
        backlog = range(len(sent), len(sent) + 5_000)  # ten batches
        queues.send(queue, numbered(backlog))
        sent.extend(backlog)
        grow()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(120)
    said = log.read_text()
    rest = CliRunner().invoke(app, command)
    assert rest.exit_code == 0, rest.stderr
    rows = queues.archived(out)
    print(
        f"{mode}: {restarts} restarts, {len(sent)} messages, {len(rows)} archived, {len(set(rows))} of them different"
    )
    assert still_runs, said
    assert rows == sent
    assert (queues.depth(queue), queues.spooled(queue)) == ((0, 0) if mode == "drain" else (len(sent), 0))
    waits = said.count("waiting for the server since")
    assert waits == said.count("the server is back") <= restarts, said
    assert code == 130
    assert [line for line in said.splitlines() if re.search(r"Traceback|StackOverflow|^\s+at ", line)] == []
    assert (
        f"http://localhost:{ui}" in said
        and f"rowpost archive {queue}" in page
        and f"rowpost archive {queue}, batch 0" in jobs
    )
    shown = {name.partition(f"rowpost archive {queue}.")[2] for name in gauges if "AccumulatorSource" in name}
    assert {"rows", "bytes", "lag_messages", "rows_per_second", "batch_seconds"} <= shown
    assert re.search(rf'rowpost_spark_rows_total{{query="rowpost archive {queue}"}} [1-9]', numbers), numbers
    assert json.loads(rest.stdout.strip().splitlines()[-1])["queue"] == queue
