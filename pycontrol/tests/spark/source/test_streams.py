"""Tail and drain: what a run reads, where the next run continues, and what is refused.

Spark's own engine runs what depends on it: its limits, its checkpoint and its errors. The rest is run by a stand-in for the engine.
"""

import json
from collections import defaultdict

import pytest
from pyspark.errors import PySparkException

from rowpost.archive.source.queue_stream import StreamRefused
from rowpost.errors import SpoolTaken
from rowpost.spark.jobs.archive import start_query
from rowpost.spark.source.checkpoint import committed_offset, finalize
from tests.support.spark.engine import Engine

pytestmark = pytest.mark.spark_version


@pytest.fixture
def run(queues, tmp_path):
    """Run a stream of Spark until it has read all messages. Returns the bodies of all runs with this checkpoint so far."""
    bodies = defaultdict(list)

    def go(queue, checkpoint="checkpoint", **options):
        def write(df, _):
            bodies[checkpoint].extend(int(bytes(row.body)) for row in df.select("body").collect())

        writer = (
            queues.stream(queue, **options)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / checkpoint))
        )
        query = start_query(writer, every=None)
        query.awaitTermination()
        go.batches = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
        return sorted(bodies[checkpoint])

    go.checkpoint = tmp_path / "checkpoint"
    return go


@pytest.fixture
def plain(queues):
    """Run a stream as Spark would. Returns the bodies of all runs with this checkpoint so far."""
    engine = Engine(queues.environment)

    def go(queue, checkpoint="checkpoint", **options):
        found = sorted(int(row["body"]) for row in engine.run(checkpoint, queue=queue, **options))
        go.batches = engine.batches
        return found

    return go


def numbered(first, last):
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_stream_takes_batches_of_the_size_that_is_asked_for_and_goes_on_where_the_last_run_ended(queues, run, mode):
    queue = queues.make()
    queues.send(queue, numbered(0, 50))

    first = run(queue, mode=mode, maxOffsetsPerTrigger=20), run.batches
    nothing_new = run(queue, mode=mode)
    queues.send(queue, numbered(50, 80))
    second = run(queue, mode=mode)

    assert first == (list(range(50)), [20, 20, 10])
    assert (nothing_new, second) == (list(range(50)), list(range(80)))
    assert queues.depth(queue) == (80 if mode == "tail" else 0)


@pytest.mark.parametrize(("engine", "mode"), [("run", "tail"), ("plain", "drain")])
def test_a_batch_has_the_bytes_that_are_asked_for_and_a_larger_message_is_a_batch_of_its_own(
    queues, request, engine, mode
):
    run, queue = request.getfixturevalue(engine), queues.make()
    queues.send(queue, [b"%0100d" % number for number in range(25)] + [b"%04000d" % 25] + numbered(26, 30))

    assert run(queue, mode=mode, maxBytesPerTrigger=20 * (100 + len("{}"))) == list(range(30))
    assert run.batches == [20, 5, 1, 4]


def test_a_tail_starts_where_it_is_told(queues, plain):
    queue = queues.make()
    queues.send(queue, numbered(0, 10))

    assert plain(queue, "c1", startingOffsets=7) == [7, 8, 9]
    plain(queue, "c2", startingOffsets="latest")
    queues.send(queue, numbered(10, 12))
    assert plain(queue, "c2", startingOffsets="latest") == [10, 11]


@pytest.mark.spark_promise
def test_the_last_batch_of_a_drain_lies_in_the_spool_until_finalize(queues, run):
    queue = queues.make()
    queues.send(queue, numbered(0, 30))

    run(queue, mode="drain", maxOffsetsPerTrigger=20)
    spooled = queues.spooled(queue)
    offset = committed_offset(run.checkpoint)
    options = {"queue": queue, "environment": queues.environment}
    refused = [
        finalize(options, run.checkpoint, confirmed={offset["queue"]: {**offset, **other}})
        for other in ({"number": 20}, {"owner": "another"})
    ]
    half = finalize(options, run.checkpoint, confirmed={offset["queue"]: {**offset, "number": offset["number"] - 5}})
    dropped = finalize(options, run.checkpoint)

    assert (spooled, refused, half, dropped, queues.spooled(queue)) == (10, [0, 0], 5, 5, 0)
    assert offset["queue"].partition("#")[0].endswith(f"/public.{queue}")
    assert finalize(options, run.checkpoint) == 0


def test_a_committed_offset_is_read_from_a_folder_and_from_a_uri(queues, run):
    queue = queues.make()
    queues.send(queue, numbered(0, 3))
    run(queue, mode="tail")

    offset = committed_offset(run.checkpoint)
    assert offset["row_version"] == 3
    assert committed_offset(run.checkpoint.as_uri()) == offset
    assert committed_offset(f"{run.checkpoint.as_uri()}/none") is None


@pytest.mark.spark_promise
def test_what_was_moved_and_not_logged_is_in_the_next_batch(queues, plain):
    queue = queues.make()
    queues.send(queue, numbered(0, 10))
    with queues.connect() as database:  # a run that was killed before its first batch was logged
        database.call("move_to_spool", queue, owner="killed", count=4)

    assert plain(queue, mode="drain") == list(range(10))


def test_a_spool_that_another_stream_will_want_is_refused_until_it_is_taken_over(queues, plain):
    queue = queues.make()
    queues.send(queue, numbered(0, 10))
    plain(queue, "first", mode="drain")
    queues.send(queue, numbered(10, 12))

    with pytest.raises(SpoolTaken, match="Another stream drains this queue"):
        plain(queue, "second", mode="drain")
    taken = plain(queue, "third", mode="drain", takeOver=True)
    with pytest.raises(SpoolTaken, match=r"drains this queue|belongs to another stream"):
        plain(queue, "first", mode="drain")

    assert taken == list(range(12))


def test_a_checkpoint_of_another_queue_is_refused(queues, run):
    one, other = queues.make(), queues.make()
    for queue in (one, other):
        queues.send(queue, numbered(0, 5))
    run(one)

    with pytest.raises(PySparkException, match="This checkpoint belongs to the queue"):
        run(other)


def test_a_checkpoint_of_the_other_mode_is_refused(queues, plain):
    queue = queues.make()
    queues.send(queue, numbered(0, 5))
    plain(queue, mode="tail")

    with pytest.raises(StreamRefused, match="cannot use the checkpoint's offset"):
        plain(queue, mode="drain")


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_queue_that_was_dropped_and_made_again_is_refused(queues, plain, mode):
    queue = queues.make()
    queues.send(queue, numbered(0, 5))
    plain(queue, mode=mode)
    with queues.connect() as database:
        database.driver_connection.execute(f'DROP TABLE public."{queue}"')
    queues.make(queue)
    queues.send(queue, numbered(0, 9))

    with pytest.raises(StreamRefused, match="dropped and created again"):
        plain(queue, mode=mode)


def test_a_queue_that_was_truncated_is_refused(queues, plain):
    queue = queues.make()
    queues.send(queue, numbered(0, 5))
    plain(queue)
    with queues.connect() as database:
        database.driver_connection.execute(f'TRUNCATE public."{queue}" RESTART IDENTITY')

    with pytest.raises(StreamRefused, match="truncated or restored"):
        plain(queue)


@pytest.mark.spark_promise
def test_a_purge_of_what_was_not_read_yet_is_refused_and_one_of_what_was_read_is_not(queues, plain):
    queue = queues.make()
    queues.send(queue, numbered(0, 5))
    plain(queue)
    with queues.connect() as database:
        database.call("purge_queue", queue, count=100)
        assert plain(queue) == list(range(5))
        queues.send(queue, numbered(5, 9))
        database.call("purge_queue", queue, count=100)
    queues.send(queue, numbered(9, 10))

    with pytest.raises(StreamRefused, match="was purged up to row version 9"):
        plain(queue)
    assert plain(queue, failOnDataLoss=False) == [0, 1, 2, 3, 4, 9]


def test_a_queue_with_a_declared_worker_is_not_drained_unless_asked_for(queues, plain, tmp_path):
    queue = queues.make()
    queues.send(queue, numbered(0, 3))
    declared = tmp_path / "declared.yml"
    declared.write_text(
        f'engine: postgresql\nurl: "${{ROWPOST_SPARK_TEST_URL}}"\nqueues:\n  {queue}: {{worker: {{handler: "shop:place"}}}}\n'
    )

    with pytest.raises(StreamRefused, match=r"declares a worker for it \(shop:place\)"):
        plain(queue, mode="drain", environment=declared)

    assert queues.depth(queue) == 3
    assert plain(queue, mode="drain", environment=declared, allowConsumers=True) == [0, 1, 2]


def test_a_queue_with_a_connected_worker_is_not_drained(queues, plain):
    from rowpost.database.connection import connect_url

    queue = queues.make()
    queues.send(queue, numbered(0, 3))

    with connect_url("postgresql", queues.url, f"rowpost worker {queue} 1"):
        with pytest.raises(StreamRefused, match="1 workers receive from it now"):
            plain(queue, mode="drain")


def test_a_tail_runs_on_while_messages_come_and_keeps_no_secret_in_its_checkpoint(queues, tmp_path):
    queue = queues.make()
    query = (
        queues.stream(queue).writeStream.format("memory").queryName(f"t{queue}")
        .option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="0 seconds").start()
    )  # fmt: skip
    try:
        for number in range(3):
            queues.send(queue, [b"%d" % number])
            query.processAllAvailable()
            assert queues.spark.table(f"t{queue}").count() == number + 1
    finally:
        query.stop()

    offset = json.loads((tmp_path / "c" / "offsets" / "0").read_text().splitlines()[2])
    assert sorted(offset) == ["purged", "queue", "row_version"]
