"""The progress of a stream says how far it is behind, and goes to a file, Prometheus, OpenTelemetry and Spark's web pages."""

import json
import re
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rowpost.archive.source.queue_stream import age_s
from rowpost.cli.app import app
from rowpost.database.connection import connect_url
from rowpost.errors import SettingsError
from rowpost.spark.jobs.archive import start_query
from rowpost.spark.progress import JsonLines, Measured, OpenTelemetry, Prometheus, listener
from rowpost.transport.queue import Queue
from tests.support.spark.messages import audit_row
from tests.support.spark.pages import free_port, read
from tests.support.workers import eventually

PYCONTROL = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, 12, 1, tzinfo=UTC)


def headers(ago: timedelta) -> str:
    """Headers of a message that was handled so long ago."""
    return audit_row(sent=datetime.now(UTC) - ago, waited=0, took=0)[5]


@pytest.fixture
def measured(queues, tmp_path):
    """Run a stream to its end or for one batch. Returns its last progress."""

    def go(queue, checkpoint="c", **options):
        query = (
            queues.stream(queue, **options).writeStream.format("noop").option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(processingTime="0 seconds").start()
        )  # fmt: skip
        try:
            query.processAllAvailable()
            return [Measured.of(json.loads(each.json)) for each in query.recentProgress]
        finally:
            query.stop()

    return go


def test_a_tail_says_how_many_messages_it_has_not_read_and_how_old_the_oldest_is(queues, measured):
    queue = queues.make()
    queues.send(queue, [b"1"] * 30, headers(timedelta(hours=2)))
    queues.send(queue, [b"2"] * 20, headers(timedelta(hours=1)))

    found = [each for each in measured(queue, maxOffsetsPerTrigger=30) if each.rows]

    assert [(each.rows, each.lag_messages) for each in found] == [(30, 20), (20, 0)]
    assert 3600 <= found[0].lag_seconds < 5400 and found[1].lag_seconds == 0
    assert found[0].spooled is None


def test_a_drain_says_what_is_in_the_queue_and_in_the_spool(queues, measured):
    queue = queues.make()
    queues.send(queue, [b"1"] * 50, headers(timedelta(hours=1)))

    found = [each for each in measured(queue, mode="drain", maxOffsetsPerTrigger=30) if each.rows]

    # Spark reports before it commits the batch before
    assert [(each.rows, each.lag_messages, each.spooled) for each in found] == [
        (30, 20, 30),
        (20, 0, 50),
    ]
    assert found[0].lag_seconds >= 3600


def test_a_tail_that_reads_nothing_says_who_holds_messages_back(queues, tmp_path):
    queue = queues.make()
    queues.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")  # ten seconds by default
    query = (
        queues.stream(queue).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        .trigger(processingTime="0 seconds").start()
    )  # fmt: skip
    queues.spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")

    def held():
        return [each for each in (Measured.of(json.loads(each.json)) for each in query.recentProgress) if each.held_by]

    with connect_url("postgresql", queues.url, "nightly job") as database:
        database.begin()
        Queue(queue, database).send(b"not committed")
        queues.send(queue, [b"2"] * 7)
        last = eventually(held, "the progress names the transaction", 60)[-1]
        database.rollback()
    query.stop()

    assert (last.lag_messages, [each["application"] for each in last.held_by], last.holders) == (7, ["nightly job"], 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('{"NServiceBus.TimeSent": "2026-01-01 12:00:00:000000 Z"}', 60.0),
        ('{"NServiceBus.TimeSent": "2026-01-01 10:00:00:000000 Z", "NServiceBus.ProcessingEnded": "2026-01-01 12:00:30:000000 Z"}', 30.0),
        ('{"NServiceBus.TimeSent": "2026-01-01 12:09:00:000000 Z"}', 0.0),  # the sender's clock is ahead
        ('{"NServiceBus.TimeSent": "yesterday"}', None),
        ("{}", None), ("", None), ("no JSON", None), ("[1]", None), (None, None),
    ],
)  # fmt: skip
def test_the_age_of_a_message_is_that_in_its_headers(text, seconds):
    assert age_s(text, NOW) == seconds


@pytest.fixture
def cli(queues, tmp_path):
    def call(queue, *arguments, environment=None):
        command = [
            "--env",
            str(environment or queues.environment),
            "spark",
            "archive",
            queue,
            str(tmp_path / "out"),
            *map(str, arguments),
        ]
        return CliRunner().invoke(app, command)

    return call


def test_the_command_writes_a_line_after_each_batch(queues, cli, tmp_path):
    queue, file = queues.make(), tmp_path / "progress.jsonl"
    queues.send(queue, [b"12345"] * 50, text := headers(timedelta(hours=1)))

    assert cli(queue, "--drain", "--max-rows", 20, "--progress", file).exit_code == 0

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    batches = [line for line in lines if line["rows"]]
    assert [line["rows"] for line in batches] == [20, 20, 10]
    assert [line["bytes"] for line in batches] == [rows * (5 + len(text)) for rows in (20, 20, 10)]
    assert [line["lag_messages"] for line in batches] == [30, 10, 0]
    assert {line["query"] for line in lines} == {f"rowpost archive {queue}"}


def test_a_file_that_cannot_be_opened_and_a_port_that_is_none_are_refused(queues, cli, tmp_path):
    queue = queues.make()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = [
            cli(queue, *options)
            for options in (("--progress", tmp_path / "none" / "p"), ("--prometheus", "x"), ("--prometheus", port))
        ]

    assert [each.exit_code for each in ended] == [3, 2, 3]
    assert "none" in ended[0].stderr and str(port) in ended[2].stderr


@pytest.fixture
def one():
    return Measured(
        "2026-01-01T00:00:00.000Z",
        "q",
        1,
        20,
        100,
        5.0,
        0.5,
        7,
        3.5,
        held_by=({"process": 1, "since": None, "application": "a"},),
    )


def test_prometheus_adds_up_rows_and_shows_the_last_lag(one):
    port = free_port()
    served = Prometheus("127.0.0.1", port)
    try:
        served(one)
        served(one)
        page = read(f"http://127.0.0.1:{port}/metrics")
    finally:
        served.close()

    numbers = dict(re.findall(r'rowpost_spark_(\w+)\{query="q"\} ([\d.]+)', page))
    assert {name: float(numbers[name]) for name in ("rows_total", "bytes_total", "lag_messages", "lag_seconds", "holders")} == {
        "rows_total": 40, "bytes_total": 200, "lag_messages": 7, "lag_seconds": 3.5, "holders": 1,
    }  # fmt: skip
    assert "spooled" not in numbers


def test_opentelemetry_gets_the_same_numbers(one):
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    receive = OpenTelemetry(MeterProvider([reader]))
    receive(one)
    receive(one)

    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    numbers = {metric.name: metric.data.data_points[0].value for metric in scope.metrics}
    assert numbers["rowpost.spark.rows"] == 40 and numbers["rowpost.spark.lag_seconds"] == 3.5
    assert dict(scope.metrics[0].data.data_points[0].attributes) == {"rowpost.spark.query": "q"}


def test_an_environment_with_meters_exports_them(queues, cli, tmp_path):
    queue, environment = queues.make(), tmp_path / "measured.yml"
    environment.write_text(
        f"engine: postgresql\nurl: {queues.named_url}\nqueues: {{}}\ntelemetry: {{meters: console}}\n"
    )
    queues.send(queue, [b"1"] * 3)

    ended = cli(queue, environment=environment)

    assert ended.exit_code == 0, ended.output
    assert "rowpost.spark.rows" in ended.stdout and json.loads(ended.stdout.strip().splitlines()[-1])["messages"] == 3


def test_a_program_of_its_own_adds_a_listener(queues, spark, tmp_path):
    queue, file = queues.make(), tmp_path / "progress.jsonl"
    queues.send(queue, [b"1"] * 3)
    added = listener(JsonLines(file))
    spark.streams.addListener(added)
    try:
        writer = queues.stream(queue).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        query = start_query(writer, every=None)
        query.awaitTermination()
        eventually(lambda: '"rows": 3' in file.read_text(), "the listener is called")
    finally:
        spark.streams.removeListener(added)


def test_a_full_disk_does_not_end_the_stream(one, capsys):
    receive = JsonLines("/dev/full")

    receive(one)
    receive(one)

    assert capsys.readouterr().err.count("cannot be written to /dev/full") == 1


def test_a_file_in_no_folder_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="none"):
        JsonLines(tmp_path / "none" / "p")
