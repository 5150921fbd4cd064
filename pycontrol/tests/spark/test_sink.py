"""Writing to a queue: each row is sent once, even if tasks fail or the job is repeated."""

import json
import os
from uuid import UUID, uuid5

import pytest
from pyspark.errors import PySparkException

NAMESPACE = UUID("5d0d0a8e-0000-4000-8000-000000000000")


@pytest.fixture
def frame(spark):
    """Create messages with ids, numbered from `first`."""

    def make(count, first=0):
        rows = [(str(uuid5(NAMESPACE, str(n))), json.dumps({"Number": str(n)}), b"%d" % n) for n in range(first, first + count)]
        return spark.createDataFrame(rows, "id string, headers string, body binary")

    return make


@pytest.fixture
def write(queues):
    def go(frame, queue, **options):
        writer = frame.write.format("rowpost").option("queue", queue).option("environment", queues.environment).mode("append")
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()

    return go


@pytest.fixture
def stored(queues):
    """Return the sorted bodies in the queue as numbers, and check headers and ids."""

    def read(queue):
        with queues.connect() as database:
            rows = database.driver_connection.execute(f'SELECT id::text, headers, body FROM public."{queue}"').fetchall()
        assert all(json.loads(headers) == {"Number": body.decode()} and id == str(uuid5(NAMESPACE, body.decode())) for id, headers, body in rows)
        return sorted(int(body) for _, _, body in rows)

    return read


@pytest.fixture
def staged(queues):
    def count():
        with queues.connect() as database:
            return database.driver_connection.execute("SELECT count(*) FROM rowpost.staged_message").fetchone()[0]

    return count


def faulty_source():
    """Create a data source whose first task fails once: with an exception, or by exiting after its commit."""
    from rowpost.spark.source.sink import LedgerWriter, StagedWriter
    from rowpost.spark.source.source import QueueSource

    class Source(QueueSource):
        @classmethod
        def name(cls):
            return "rowpost_faulty"

        def writer(self, schema, overwrite):
            made = super().writer(schema, overwrite)
            made.__class__ = FaultyLedger if isinstance(made, LedgerWriter) else FaultyStaged
            made.fault, made.marker = self.options["fault"], self.options["marker"]
            return made

    def first(writer, fault):
        if writer.fault != fault or os.path.exists(writer.marker):
            return False
        open(writer.marker, "w").close()
        return True

    def until_it_fails(writer, batches):
        yield from batches
        if first(writer, "raises at its last row"):
            raise RuntimeError("injected")

    class FaultyLedger(LedgerWriter):
        def write(self, iterator):
            written = LedgerWriter.write(self, until_it_fails(self, iterator))
            if first(self, "dies after its commit"):
                os._exit(9)
            return written

    class FaultyStaged(StagedWriter):
        def write(self, iterator):
            written = StagedWriter.write(self, until_it_fails(self, iterator))
            if first(self, "dies after its commit"):
                os._exit(9)
            return written

    return Source


@pytest.mark.parametrize("mode", ["ledger", "staged"])
def test_messages_are_stored_as_they_are(queues, write, stored, frame, staged, mode):
    queue = queues.make()

    write(frame(50), queue, mode=mode)

    assert stored(queue) == list(range(50))
    assert staged() == 0


@pytest.mark.parametrize("mode", ["ledger", "staged"])
@pytest.mark.parametrize("fault", ["raises at its last row", "dies after its commit"])
def test_a_task_that_fails_and_runs_again_stores_nothing_twice(queues, stored, frame, spark, staged, tmp_path, mode, fault):
    queue, marker = queues.make(), tmp_path / "failed"
    spark.dataSource.register(faulty_source())

    writer = frame(60).repartition(3, "id").write.format("rowpost_faulty").mode("append").options(fault=fault, marker=str(marker))
    writer.options(queue=queue, environment=queues.environment, mode=mode, jobKey=f"{mode} {fault}", jobParts=3, messagesPerCall=5).save()

    assert marker.exists()
    assert stored(queue) == list(range(60))
    assert staged() == 0


@pytest.mark.parametrize("mode", ["ledger", "staged"])
def test_the_same_job_again_stores_nothing_and_other_data_under_its_key_are_refused(queues, write, stored, frame, mode):
    queue, other = queues.make(), queues.make()
    same = frame(30).repartition(2, "id")
    for _ in range(2):
        write(same, queue, mode=mode, jobKey=f"again-{mode}", jobParts=2)

    with pytest.raises(PySparkException, match=r"job key 'again-\w+' was already used"):
        write(frame(30, first=1).repartition(2, "id"), queue, mode=mode, jobKey=f"again-{mode}", jobParts=2)
    write(same, other, mode=mode, jobKey=f"again-{mode}", jobParts=2)

    assert stored(queue) == stored(other) == list(range(30))


def test_a_job_again_in_other_partitions_is_refused_by_the_ledger_and_recognised_when_staged(queues, write, stored, frame):
    queue, staged_queue = queues.make(), queues.make()
    write(frame(30).repartition(2, "id"), queue, jobKey="parts", jobParts=2)
    write(frame(30).repartition(2, "id"), staged_queue, mode="staged", jobKey="parts")

    with pytest.raises(PySparkException, match="jobKey requires jobParts"):
        write(frame(30).repartition(4, "id"), queue, jobKey="parts")
    with pytest.raises(PySparkException, match="by a job of 2 parts; this one has 3"):
        write(frame(30).repartition(3, "id"), queue, jobKey="parts", jobParts=3)
    write(frame(30).repartition(4, "id"), staged_queue, mode="staged", jobKey="parts")

    assert stored(queue) == stored(staged_queue) == list(range(30))


def test_a_job_that_failed_half_way_and_comes_again_in_more_partitions_sends_nothing(queues, stored, write, frame):
    queue = queues.make()
    with queues.connect() as database:  # the state after a run of two partitions that was killed after its first one
        with database.transaction():
            assert database.call("claim_ledger", job_key=f"half@{queue}", part=0, parts=2)[0][0]
            database.call("settle_ledger", job_key=f"half@{queue}", part=0, messages=0, digest="")

    with pytest.raises(PySparkException, match="by a job of 2 parts; this one has 4"):
        write(frame(30).repartition(4, "id"), queue, jobKey="half", jobParts=4)

    assert stored(queue) == []


def test_a_wrong_number_of_partitions_is_reported(queues, stored, write, frame):
    queue = queues.make()

    with pytest.raises(PySparkException, match="jobParts is 4, but the DataFrame had 2 partitions"):
        write(frame(30).repartition(2, "id"), queue, jobKey="told", jobParts=4)
    write(frame(30).repartition(2, "id"), queue, jobKey="told", jobParts=2)

    assert stored(queue) == list(range(30))


def test_writes_without_a_key_are_separate_jobs(queues, write, stored, frame):
    queue = queues.make()

    write(frame(5), queue)
    write(frame(5), queue)

    assert stored(queue) == sorted([*range(5)] * 2)


def test_ids_are_new_where_none_is_given_and_bodies_may_be_missing_or_text(queues, write, spark):
    queue = queues.make()

    write(spark.createDataFrame([("{}", None), (None, "text")], "headers string, body string"), queue)

    rows = queues.read(queue).orderBy("row_version").collect()
    assert sorted((row.headers, None if row.body is None else bytes(row.body)) for row in rows if row.body) == [("", b"text")]
    assert len({row.id for row in rows}) == 2


def test_what_was_read_from_a_queue_can_be_written_to_another(queues, write, stored, frame):
    one, other = queues.make(), queues.make()
    write(frame(20), one)

    write(queues.read(one), other)

    assert stored(other) == list(range(20))


@pytest.mark.parametrize(
    ("rows", "schema", "says"),
    [
        ([("x",)], "headers string", "body missing"),
        ([("x", b"", 1)], "headers string, body binary, size int", "size unknown"),
        ([(1, b"")], "headers int, body binary", r"headers must be string \(got int\)"),
        ([("no uuid", "{}", b"")], "id string, headers string, body binary", "no uuid.* is not a message id"),
    ],
)
def test_a_frame_that_is_none_of_messages_is_refused_in_words(queues, write, spark, rows, schema, says):
    queue = queues.make()

    with pytest.raises(PySparkException, match=says):
        write(spark.createDataFrame(rows, schema), queue)

    assert queues.depth(queue) == 0


def test_a_queue_is_never_overwritten_and_one_that_is_not_there_is_named(queues, write, frame):
    queue = queues.make()

    with pytest.raises(PySparkException, match="append"):
        frame(1).write.format("rowpost").option("queue", queue).option("environment", queues.environment).mode("overwrite").save()
    with pytest.raises(PySparkException, match="No queue named 'nowhere'"):
        write(frame(1), "nowhere")


def test_a_stream_writes_each_batch_once_although_its_last_one_is_run_again(queues, stored, frame, write, tmp_path, staged):
    source, target = queues.make(), queues.make()
    write(frame(50), source)

    def run():
        query = (
            queues.stream(source, maxOffsetsPerTrigger=20).select("id", "headers", "body")
            .writeStream.format("rowpost").option("queue", target).option("environment", queues.environment)
            .option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    run()
    (tmp_path / "c" / "commits" / "2").unlink()  # as if it had been killed after the sink's commit and before Spark's
    (tmp_path / "c" / "commits" / ".2.crc").unlink(missing_ok=True)
    run()
    write(frame(10, first=50), source)
    run()

    assert stored(target) == list(range(60))
    assert staged() == 0


def test_a_key_that_is_too_long_is_refused(queues, write, frame):
    with pytest.raises(PySparkException, match="at most 200 characters"):
        write(frame(1), queues.make(), jobKey="k" * 200, jobParts=1)
