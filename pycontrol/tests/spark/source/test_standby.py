"""A standby does not show who writes on the primary: streams and the watermark are refused there, and batch reads work."""

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from typer.testing import CliRunner

from rowpost.archive.source.queue_stream import StreamRefused
from rowpost.archive.source.streams import BatchPart
from rowpost.cli.app import app
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.source import QueueSource
from tests.support.spark.queues import Queues
from tests.support.standby import lasting_pair

__all__ = ["lasting_pair"]

FAILED = 7


@pytest.fixture(scope="module")
def standby(lasting_pair, tmp_path_factory):
    """The environment file of a standby, and the name of a queue there with three messages."""
    folder = tmp_path_factory.mktemp("standby")
    queues = Queues(lasting_pair.url, folder)
    queue = queues.make()
    queues.send(queue, [b"1", b"2", b"3"])
    there = folder / "standby.yml"
    there.write_text(f"engine: postgresql\nurl: {lasting_pair.caught_up()}\nqueues: {{}}\n")
    return str(there), queue


@pytest.fixture
def source(standby):
    environment, queue = standby
    return lambda **options: QueueSource({"queue": queue, "environment": environment, **options})


def test_a_batch_read_without_a_watermark_reads_what_the_standby_has(source):
    reader = source(minPartitions="1").reader(MESSAGE)

    rows = pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])

    assert rows["body"].to_pylist() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_stream_is_refused_before_it_has_read_anything(source, mode):
    stream = source(mode=mode).streamReader(MESSAGE)

    with pytest.raises(StreamRefused, match=r"a standby.* the primary"):
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())


def test_a_batch_read_up_to_the_watermark_and_a_tail_from_the_latest_message_are_refused(source):
    with pytest.raises(StreamRefused, match="endingOffsets=latest"):
        source(endingOffsets="watermark").reader(MESSAGE).partitions()
    with pytest.raises(StreamRefused, match="endingOffsets=latest"):
        source(startingOffsets="latest").streamReader(MESSAGE).initialOffset()


def test_a_planned_batch_is_not_read_from_a_standby(source):
    stream = source().streamReader(MESSAGE)
    end = stream.initialOffset() | {"row_version": 3}

    with pytest.raises(StreamRefused, match="a standby"):
        stream.partitions(stream.initialOffset(), end)
    with pytest.raises(
        StreamRefused, match="a standby"
    ):  # a url with several hosts may lead a task to another server than the planner
        list(stream.read(InputPartition(BatchPart(0, 3, end["queue"], end, True))))


@pytest.mark.parametrize("command", [["spark", "archive"], ["archive"]])
def test_the_command_refuses_a_standby_before_it_makes_an_archive(standby, tmp_path, command):
    environment, queue = standby

    ended = CliRunner().invoke(app, ["--env", environment, *command, queue, str(tmp_path / "out")])

    assert ended.exit_code == FAILED and "the primary" in ended.stderr
    assert not (tmp_path / "out").exists()
