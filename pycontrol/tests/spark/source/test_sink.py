"""Writing to a queue: each row is sent once, even if tasks fail or the job is repeated."""

import json
import os
import re
from uuid import UUID, uuid5

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rowpost.errors import JobKeyUsed
from rowpost.spark.jobs.archive import start_query
from rowpost.spark.progress import Measured
from rowpost.spark.source.job import Job, MessageTally, full_key
from rowpost.wire.message import OutgoingMessage

NAMESPACE = UUID("5d0d0a8e-0000-4000-8000-000000000000")


@pytest.fixture
def frame(spark):
    """Create messages with ids, numbered from `first`."""

    def make(count, first=0):
        rows = [
            (str(uuid5(NAMESPACE, str(n))), json.dumps({"Number": str(n)}), b"%d" % n)
            for n in range(first, first + count)
        ]
        return spark.createDataFrame(rows, "id string, headers string, body binary")

    return make


@pytest.fixture(autouse=True)
def nothing_staged(queues):
    with queues.connect() as database:
        if database.driver_connection.execute("SELECT to_regclass('rowpost.staged_message')").fetchone()[0] is not None:
            database.driver_connection.execute("DELETE FROM rowpost.staged_message")


@pytest.fixture
def write(queues):
    def go(frame, queue, **options):
        writer = (
            frame.write.format("rowpost")
            .option("queue", queue)
            .option("environment", queues.environment)
            .mode("append")
        )
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()

    return go


@pytest.fixture
def stored(queues):
    """Return the sorted bodies in the queue as numbers, and check headers and ids."""

    def read(queue):
        with queues.connect() as database:
            rows = database.driver_connection.execute(
                f'SELECT id::text, headers, body FROM public."{queue}"'
            ).fetchall()
        assert all(
            json.loads(headers) == {"Number": body.decode()} and id == str(uuid5(NAMESPACE, body.decode()))
            for id, headers, body in rows
        )
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
    from rowpost.spark.source.sink import DirectWriter, StagedWriter
    from rowpost.spark.source.source import QueueSource

    class Source(QueueSource):
        @classmethod
        def name(cls):
            return "rowpost_faulty"

        def writer(self, schema, overwrite):
            fault, marker = self.options.pop("fault"), self.options.pop("marker")
            made = super().writer(schema, overwrite)
            made.__class__ = FaultyDirect if isinstance(made, DirectWriter) else FaultyStaged
            made.fault, made.marker = fault, marker
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

    class FaultyDirect(DirectWriter):
        def write(self, iterator):
            written = DirectWriter.write(self, until_it_fails(self, iterator))
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


def dying_source():
    """Create a data source whose driver-side process exits in commit, after the first part is sent."""
    from rowpost.spark.source.job import Job
    from rowpost.spark.source.sink import StagedWriter
    from rowpost.spark.source.source import QueueSource

    class Source(QueueSource):
        @classmethod
        def name(cls):
            return "rowpost_dying"

        def writer(self, schema, overwrite):
            made = super().writer(schema, overwrite)
            made.__class__ = Dying
            return made

    class Dying(StagedWriter):
        def commit(self, messages):
            send = Job.send

            def send_and_exit(job, database, part, stored):
                send(job, database, part, stored)
                os._exit(9)

            Job.send = send_and_exit
            StagedWriter.commit(self, messages)

    return Source


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_messages_are_stored_as_they_are(queues, write, stored, frame, staged, mode):
    queue = queues.make()

    write(frame(50), queue, mode=mode)

    assert stored(queue) == list(range(50))
    assert staged() == 0


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["staged", "direct"])
@pytest.mark.parametrize("fault", ["raises at its last row", "dies after its commit"])
def test_a_task_that_fails_and_runs_again_stores_nothing_twice(
    queues, stored, frame, spark, staged, tmp_path, mode, fault
):
    queue, marker = queues.make(), tmp_path / "failed"
    spark.dataSource.register(faulty_source())

    writer = (
        frame(60)
        .repartition(3, "id")
        .write.format("rowpost_faulty")
        .mode("append")
        .options(fault=fault, marker=str(marker))
    )
    writer.options(
        queue=queue, environment=queues.environment, mode=mode, jobKey=f"{mode} {fault}", messagesPerCall=5
    ).save()

    assert marker.exists()
    assert stored(queue) == list(range(60))
    assert staged() == 0


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_the_same_job_again_stores_nothing_and_other_data_under_its_key_are_refused(queues, write, stored, frame, mode):
    queue, other = queues.make(), queues.make()
    same = frame(30).repartition(2, "id")
    for _ in range(2):
        write(same, queue, mode=mode, jobKey=f"again-{mode}")

    with pytest.raises(PySparkException, match=r"job key 'again-.*' was already used with other messages"):
        write(frame(30, first=1).repartition(2, "id"), queue, mode=mode, jobKey=f"again-{mode}")
    write(same, other, mode=mode, jobKey=f"again-{mode}")

    assert stored(queue) == stored(other) == list(range(30))


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_a_job_that_is_done_is_recognised_in_other_partitions(queues, write, stored, frame, mode):
    queue = queues.make()
    write(frame(30).repartition(2, "id"), queue, mode=mode, jobKey="parts")

    write(frame(30).repartition(4, "id"), queue, mode=mode, jobKey="parts")

    assert stored(queue) == list(range(30))


@pytest.fixture
def half_sent(queues, frame):
    """Return the key of a direct job of two partitions that was killed when it had sent its first one."""

    def make(queue):
        rows = [
            (row.id, row.headers, bytes(row.body))
            for row in frame(30).repartition(2, "id").where(F.spark_partition_id() == 0).collect()
        ]
        tally = MessageTally()
        with queues.connect() as database, database.transaction():
            database.call("begin_job", job_key=f"half@{queue}", destination=queue, run="killed", mode="direct")
            assert database.call("claim_ledger", job_key=f"half@{queue}", part=0)[0].claimed
            for row in rows:
                tally.add(*row)
            database.call(
                "send_messages",
                queue,
                messages=[OutgoingMessage(body, headers, UUID(id)) for id, headers, body in rows],
            )
            database.call(
                "settle_ledger", job_key=f"half@{queue}", part=0, messages=tally.messages, digest=tally.digest
            )
        return len(rows)

    return make


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_a_direct_job_that_was_killed_half_way_goes_on_under_its_key(
    queues, stored, write, frame, staged, half_sent, mode
):
    queue = queues.make()
    sent = half_sent(queue)

    write(frame(30).repartition(2, "id"), queue, jobKey="half", mode=mode)

    assert 0 < sent < 30
    assert stored(queue) == list(range(30))
    assert staged() == 0


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_a_direct_job_that_was_killed_half_way_sends_nothing_when_it_comes_again_in_other_partitions(
    queues, stored, write, frame, staged, half_sent, mode
):
    queue = queues.make()
    sent = half_sent(queue)

    with pytest.raises(PySparkException, match="an earlier run sent some parts of its data"):
        write(frame(30).repartition(4, "id"), queue, jobKey="half", mode=mode)

    assert len(stored(queue)) == sent
    assert staged() == 0


@pytest.mark.spark_promise
def test_a_job_whose_driver_was_killed_while_it_sent_goes_on_with_what_it_had_stored(
    queues, stored, write, frame, staged, spark
):
    queue = queues.make()
    spark.dataSource.register(dying_source())
    writer = frame(60).repartition(3, "id").write.format("rowpost_dying").mode("append")
    with pytest.raises(Py4JError):
        writer.options(queue=queue, environment=queues.environment, jobKey="killed").save()
    after_the_kill = len(stored(queue))

    write(frame(60).repartition(5, "id"), queue, jobKey="killed")

    assert 0 < after_the_kill < 60
    assert stored(queue) == list(range(60))
    assert staged() == 0


def test_other_data_under_the_key_of_a_job_that_was_killed_while_it_sent_are_refused(
    queues, stored, write, frame, spark
):
    queue = queues.make()
    spark.dataSource.register(dying_source())
    writer = frame(60).repartition(3, "id").write.format("rowpost_dying").mode("append")
    with pytest.raises(Py4JError):
        writer.options(queue=queue, environment=queues.environment, jobKey="killed").save()
    after_the_kill = stored(queue)

    with pytest.raises(PySparkException, match="already used with other messages: 60 then, 61 now"):
        write(frame(61).repartition(3, "id"), queue, jobKey="killed")

    assert stored(queue) == after_the_kill


def test_a_task_that_outlives_its_job_stores_nothing(queues, write, stored, frame, staged):
    queue = queues.make()
    job = Job(full_key("zombie", queue), queue, "run-1")
    with queues.connect() as database:
        job.begin(database, "staged")
        job.fail(database)

        with pytest.raises(JobKeyUsed, match="has ended"):
            database.call("stage_messages", job_key=job.key, attempt="run-1/0/1", messages=[OutgoingMessage(b"late")])

    assert staged() == 0
    write(frame(5), queue, jobKey="zombie")
    assert stored(queue) == list(range(5))


def test_writes_without_a_key_are_separate_jobs(queues, write, stored, frame):
    queue = queues.make()

    write(frame(5), queue)
    write(frame(5), queue)

    assert stored(queue) == sorted([*range(5)] * 2)


def test_ids_are_new_where_none_is_given_and_bodies_may_be_missing_or_text(queues, write, spark):
    queue = queues.make()

    write(spark.createDataFrame([("{}", None), ("", "text")], "headers string, body string"), queue)

    rows = queues.read(queue).orderBy("row_version").collect()
    assert sorted((row.headers, None if row.body is None else bytes(row.body)) for row in rows if row.body) == [
        ("", b"text")
    ]
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
        ([("{}", b"", 1)], "headers string, body binary, queue int", r"queue must be string \(got int\)"),
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
        frame(1).write.format("rowpost").option("queue", queue).option("environment", queues.environment).mode(
            "overwrite"
        ).save()
    with pytest.raises(PySparkException, match="No queue named 'nowhere'"):
        write(frame(1), "nowhere")


@pytest.mark.spark_version
def test_a_stream_writes_each_batch_once_although_its_last_one_is_run_again_and_reports_both(
    queues, stored, frame, write, tmp_path, staged, spark
):
    source, target = queues.make(), queues.make()
    write(frame(50), source)

    def run():
        writer = (
            queues.stream(source, maxOffsetsPerTrigger=20).select("id", "headers", "body")
            .writeStream.format("rowpost").option("queue", target).option("environment", queues.environment)
            .option("checkpointLocation", str(tmp_path / "c"))
        )  # fmt: skip
        query = start_query(writer, every=None)
        query.awaitTermination()
        of_the_stream = SparkSession(spark.sparkContext, query._jsq.streamingQuery().sparkSessionForStream())
        said = of_the_stream.tvf.python_worker_logs().where("logger = 'rowpost.spark.sink'").collect()
        logged = sorted(
            re.sub(r"batch (\d+) of .*: tasks have written (\d+) .* now sent (\d+)", r"\1: \2, \3", row.msg)
            for row in said
        )
        return [
            measured.written
            for measured in (Measured.of(json.loads(each.json)) for each in query.recentProgress)
            if measured.rows
        ], logged

    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        first = run()
        (
            tmp_path / "c" / "commits" / "2"
        ).unlink()  # as if it had been killed after the sink's commit and before Spark's
        (tmp_path / "c" / "commits" / ".2.crc").unlink(missing_ok=True)
        write(frame(10, first=50), source)
        repeated = run()
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")

    assert stored(target) == list(range(60))
    assert staged() == 0
    assert first == ([20, 20, 10], ["0: 20, 20", "1: 20, 20", "2: 10, 10"])
    assert repeated == ([10, 10], ["2: 10, 0", "3: 10, 10"])


@pytest.fixture
def write_by_column(queues):
    """Write rows whose column queue names their destinations: even numbers to one queue, odd numbers to the other."""

    def go(frame, one, other, format="rowpost", **options):
        named = frame.withColumn(
            "queue", F.when(F.conv(F.substring("id", 36, 1), 16, 10).cast("int") % 2 == 0, one).otherwise(other)
        )
        named.write.format(format).mode("append").options(environment=queues.environment, **options).save()

    return go


def halves(count):
    """The numbers of the messages that write_by_column sends to each queue."""
    even = [int(str(uuid5(NAMESPACE, str(n)))[-1], 16) % 2 == 0 for n in range(count)]
    return [n for n in range(count) if even[n]], [n for n in range(count) if not even[n]]


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_rows_name_their_queues_and_each_is_sent_once_also_if_the_job_runs_again(
    queues, write_by_column, stored, frame, staged, mode
):
    one, other = queues.make(), queues.make()

    for _ in range(2):
        write_by_column(
            frame(60).repartition(3, "id"), one, other, mode=mode, jobKey=f"by-column-{mode}", messagesPerCall=7
        )
    with pytest.raises(PySparkException, match="already used with other messages"):
        write_by_column(frame(60).repartition(3, "id"), other, one, mode=mode, jobKey=f"by-column-{mode}")

    assert (stored(one), stored(other)) == halves(60)
    assert staged() == 0


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_queues_that_do_not_exist_are_refused_with_their_names_before_anything_is_sent(
    queues, write_by_column, frame, staged, spark, mode
):
    one = queues.make()

    with pytest.raises(PySparkException, match="Nothing was sent: the column queue names 'nowhere'"):
        write_by_column(frame(60).coalesce(1), one, "nowhere", mode=mode)
    with pytest.raises(PySparkException, match="names 'also nowhere', 'nowhere'"):
        write_by_column(frame(60).coalesce(1), "also nowhere", "nowhere", mode=mode)
    with pytest.raises(PySparkException, match="has no destination: its column queue is null"):
        write_by_column(frame(60).coalesce(1), one, None, mode=mode)

    assert queues.depth(one) == staged() == 0


def test_a_job_with_several_queues_whose_driver_was_killed_goes_on_with_what_it_had_stored(
    queues, write_by_column, stored, frame, staged, spark
):
    one, other = queues.make(), queues.make()
    spark.dataSource.register(dying_source())
    with pytest.raises(Py4JError):
        write_by_column(frame(60).repartition(3, "id"), one, other, "rowpost_dying", jobKey="killed by column")
    after_the_kill = queues.depth(one) + queues.depth(other)

    write_by_column(frame(60).repartition(5, "id"), one, other, jobKey="killed by column")

    assert 0 < after_the_kill < 60
    assert (stored(one), stored(other)) == halves(60)
    assert staged() == 0


def test_the_option_queue_is_the_destination_of_all_rows_whatever_the_column_says(queues, write, stored, frame):
    queue = queues.make()

    write(frame(10).withColumn("queue", F.lit("nowhere")), queue)

    assert stored(queue) == list(range(10))


def test_a_stream_sends_rows_to_the_queues_that_they_name(queues, stored, frame, write, tmp_path, staged):
    source, one, other = queues.make(), queues.make(), queues.make()
    write(frame(50), source)

    def run(first):
        writer = (
            queues.stream(source, maxOffsetsPerTrigger=20)
            .select("id", "headers", "body", F.when(F.col("row_version") <= 25, first).otherwise(other).alias("queue"))
            .writeStream.format("rowpost").option("environment", queues.environment).option("checkpointLocation", str(tmp_path / "c"))
        )  # fmt: skip
        start_query(writer, every=None).awaitTermination()

    with pytest.raises(PySparkException, match="names 'nowhere'"):
        run("nowhere")
    refused = queues.depth(other), staged()
    run(one)
    (tmp_path / "c" / "commits" / "2").unlink()  # as if it had been killed after the sink's commit and before Spark's
    (tmp_path / "c" / "commits" / ".2.crc").unlink(missing_ok=True)
    run(one)

    assert refused == (0, 0)
    assert len(stored(one)) == len(stored(other)) == 25
    assert sorted(stored(one) + stored(other)) == list(range(50))
    assert staged() == 0


def test_a_key_that_is_too_long_is_refused(queues, write, frame):
    with pytest.raises(PySparkException, match="at most 200 characters"):
        write(frame(1), queues.make(), jobKey="k" * 200)
