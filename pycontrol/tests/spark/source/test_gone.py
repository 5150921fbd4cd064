"""A queue that is dropped below a running query is named as gone, and not as a queue without a feature. It needs no Spark session."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rowpost.deploy.queues import forget_queue
from rowpost.errors import QueueNotFound
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.job import Job, MessageTally, Stored
from rowpost.spark.source.source import QueueSource
from tests.support.spark.queues import Queues


@pytest.fixture
def queues(spark_url, tmp_path):
    return Queues(spark_url, tmp_path)


def drop(queues, queue):
    with queues.connect() as database:
        forget_queue(database, queue)


def says_that_it_is_gone(queue):
    return pytest.raises(QueueNotFound, match=f"^No queue named '{queue}' is in this database: it was dropped")


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_the_planner_the_tasks_and_the_commit_of_a_stream_say_that_its_queue_is_gone(queues, mode):
    queue = queues.make()
    queues.send(queue, [b"1", b"2"])
    stream = QueueSource({"queue": queue, "environment": queues.environment, "mode": mode}).streamReader(MESSAGE)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    part = stream.partitions(start, end)[0]

    drop(queues, queue)

    with says_that_it_is_gone(queue):
        stream.latestOffset(end, ReadAllAvailable())
    with says_that_it_is_gone(queue):
        list(stream.read(part))
    if mode == "drain":
        with says_that_it_is_gone(queue):
            stream.commit(end)


def test_a_sink_that_sends_what_it_has_stored_says_that_its_queue_is_gone(queues):
    queue = queues.make()
    job = Job(f"k@{queue}", queue, "run")
    with queues.connect() as database:
        job.begin(database, "staged")
        drop(queues, queue)

        with says_that_it_is_gone(queue):
            job.send(database, 0, Stored.of("a", MessageTally()))
