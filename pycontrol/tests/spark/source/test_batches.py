"""Where a tail ends its batches, and how it divides them. It needs no Spark session."""

import re
from dataclasses import replace

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from rowpost.errors import PermissionDenied
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.source import QueueSource
from tests.support.spark.queues import Queues


@pytest.fixture
def queues(spark_url, tmp_path):
    return Queues(spark_url, tmp_path)


@pytest.fixture
def plan(queues):
    """Plan all batches of a tail with a limit. Returns the rows of each of their partitions."""

    def batches(queue, limit, **options):
        asked = {
            "queue": queue,
            "environment": queues.environment,
            "maxOffsetsPerTrigger": str(limit),
            "minPartitions": "2",
            **options,
        }
        stream = QueueSource(asked).streamReader(MESSAGE)
        end, found = stream.initialOffset(), []
        while (start := end) != (end := stream.latestOffset(start, ReadMaxRows(limit))):
            found.append([sum(batch.num_rows for batch in stream.read(part)) for part in stream.partitions(start, end)])
        return found

    return batches


def leave_a_gap(queues, queue, row_versions=20_000_000):
    with queues.connect() as database:
        sequence = f"pg_get_serial_sequence('public.{queue}', 'seq')"
        database.driver_connection.execute(
            f"SELECT setval({sequence}, pg_sequence_last_value({sequence}::regclass) + {row_versions})"
        )


def test_a_gap_of_row_versions_costs_no_batches(queues, plan):
    queue = queues.make()
    queues.send(queue, [b"1", b"2"])
    leave_a_gap(queues, queue)
    queues.send(queue, [b"3", b"4"])

    assert list(map(sum, plan(queue, 3))) == [3, 1]


def test_a_batch_has_as_many_messages_as_its_limit_and_the_last_one_the_rest(queues, plan):
    queue = queues.make()
    queues.send(queue, [b"x"] * 25)

    assert list(map(sum, plan(queue, 10))) == [10, 10, 5]


def test_the_partitions_of_a_batch_with_a_gap_have_about_the_same_work(queues, plan):
    queue = queues.make()
    queues.send(queue, [b"x"])
    leave_a_gap(queues, queue)
    queues.send(queue, [b"x"] * 99)

    (parts,) = plan(queue, 100)

    assert sum(parts) == 100 and len(parts) == 2 and min(parts) >= 25


@pytest.mark.parametrize("role", ["rowpost_reader", "rowpost_body_reader"])
def test_a_login_that_may_not_read_bodies_is_told_the_role_before_a_task_runs(queues, tmp_path, role):
    queue = queues.make()
    queues.send(queue, [b"1"])
    with queues.connect() as database:
        database.driver_connection.execute(f"CREATE ROLE analyst_{queue} LOGIN; GRANT {role} TO analyst_{queue}")
    folder = tmp_path / "analyst"
    folder.mkdir()
    analyst = replace(queues, url=re.sub("//[^@/]*@", f"//analyst_{queue}@", queues.url), folder=folder)
    analyst.named_url = f'"{analyst.url}"'
    source = QueueSource({"queue": queue, "environment": analyst.environment})
    stream = source.streamReader(MESSAGE)
    starts = (
        lambda: source.reader(MESSAGE).partitions(),
        lambda: stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit()),
    )

    said = []
    for start in starts:
        try:
            start()
        except PermissionDenied as error:
            said.append("the role rowpost_body_reader" in str(error))

    with queues.connect() as database:
        database.driver_connection.execute(f"DROP ROLE analyst_{queue}")
    assert said == ([True, True] if role == "rowpost_reader" else [])
