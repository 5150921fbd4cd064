"""Writing to a queue while something above the sink fails: an expression, a Python function, or its process."""

import os
from io import BufferedReader, BytesIO
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from rowpost.errors import SettingsError, SparkFailed
from rowpost.spark.source.sink import check_complete, pipe_of_task

pytestmark = pytest.mark.spark_version

ROWS, PARTITIONS, ROWS_PER_BATCH = 400, 2, 20  # rows 0 to 199 are the first partition


@F.udf(BooleanType())
def passes_or_raises(number, bad):
    if number == bad:
        raise ValueError("injected")
    return True


@F.udf(BooleanType())
def passes_or_exits(number, bad):
    if number == bad:
        os._exit(9)
    return True


#: conditions that fail at the row whose number is `bad`, and hold for all others
FAULTS = {
    "an overflow": lambda number, bad: F.expr("9223372036854775807L") + (number == bad).cast("bigint") > 0,
    "raise_error": lambda number, bad: F.when(number == bad, F.raise_error(F.lit("injected"))).otherwise(F.lit(True)),
    "a Python function that raises": lambda number, bad: passes_or_raises(number, bad),
    "a Python process that exits": lambda number, bad: passes_or_exits(number, bad),
}
PLACES = {"the first row": 200, "the first row of a later batch": 260, "a row within a batch": 313, "the last row": 399}


@pytest.fixture
def rows(spark):
    """Create numbered messages. If `fault` is given, computing the row `bad` fails."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))

    def make(fault=None, bad=-1):
        numbers = spark.range(0, ROWS, 1, PARTITIONS)
        if fault is not None:
            numbers = numbers.where(FAULTS[fault](F.col("id"), F.lit(bad)))
        id = F.format_string("00000000-0000-4000-8000-%012d", F.col("id"))
        return numbers.select(
            id.alias("id"), F.lit("{}").alias("headers"), F.col("id").cast("string").cast("binary").alias("body")
        )

    yield make
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.fixture
def stored(queues):
    """Return the numbers of the messages in a queue."""

    def read(queue):
        with queues.connect() as database:
            return sorted(
                int(body)
                for (body,) in database.driver_connection.execute(f'SELECT body FROM public."{queue}"').fetchall()
            )

    return read


@pytest.fixture
def write(queues):
    def go(frame, queue, **options):
        frame.write.format("rowpost").options(
            queue=queue, environment=queues.environment, messagesPerCall=15, **options
        ).mode("append").save()

    return go


#: An expression fails at every place. A Python function gets its rows in batches, and fails within one or at its end.
CASES = pytest.mark.parametrize(
    ("fault", "place", "key"),
    [
        *(("an overflow", place, {}) for place in PLACES),
        ("raise_error", "a row within a batch", {"jobKey": "above"}),
        ("a Python function that raises", "a row within a batch", {}),
        ("a Python function that raises", "the last row", {"jobKey": "above"}),
        ("a Python process that exits", "a row within a batch", {"jobKey": "above"}),
        ("a Python process that exits", "the last row", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "a key" if value else "no key",
)


@CASES
def test_an_error_above_the_sink_sends_nothing_and_the_repaired_job_sends_everything_once(
    queues, rows, write, stored, fault, place, key
):
    queue = queues.make()

    with pytest.raises((PySparkException, Py4JError)):
        write(rows(fault, PLACES[place]), queue, **key)
    after_the_error = stored(queue)
    write(rows(), queue, **key)

    assert after_the_error == []
    assert stored(queue) == list(range(ROWS))


@CASES
def test_an_error_above_a_direct_write_sends_no_part_of_its_partition(queues, rows, write, stored, fault, place, key):
    queue = queues.make()

    with pytest.raises((PySparkException, Py4JError)):
        write(rows(fault, PLACES[place]), queue, mode="direct", **key)
    after_the_error = stored(queue)
    write(rows(), queue, mode="direct", **key)

    whole = list(range(ROWS // PARTITIONS))
    assert after_the_error in ([], whole)
    assert stored(queue) == sorted([*range(ROWS), *([] if key else after_the_error)])


def to_a_stream(frame, folder: Path, queue: str, environment: str) -> None:
    """Send rows to a queue by a stream, which reads them from files."""
    frame.write.parquet(str(folder / "rows"))
    stream = frame.sparkSession.readStream.schema(frame.schema).parquet(str(folder / "rows"))
    writer = stream.writeStream.format("rowpost").options(
        queue=queue, environment=environment, checkpointLocation=str(folder / "checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    ("mode", "headers", "says"),
    [
        ("staged", None, "They are null"),
        ("staged", "{not json", "not JSON"),
        ("direct", '{"a": 1}', "'a'"),
        ("direct", None, "They are null"),
        ("stream", "[1]", "a JSON list"),
    ],
)
def test_headers_that_no_endpoint_can_read_are_refused_with_their_message(
    spark, queues, write, stored, tmp_path, mode, headers, says
):
    queue, id = queues.make(), "00000000-0000-4000-8000-000000000007"
    rows = spark.createDataFrame(
        [(None, "{}", b"1"), (None, "", b"2"), (id, headers, b"3")], "id string, headers string, body binary"
    ).coalesce(1)

    with pytest.raises(PySparkException, match=f"(?s){id} cannot be sent.*{says}"):
        if mode == "stream":
            to_a_stream(rows, tmp_path, queue, queues.environment)
        else:
            write(rows, queue, mode=mode)
    after_the_error = stored(queue)
    write(rows.where("id is null"), queue, mode="staged")

    assert (after_the_error, stored(queue)) == ([], [1, 2])


@pytest.mark.parametrize("mode", ["staged", "direct"])
def test_a_shuffle_whose_files_are_lost_while_the_sink_reads_them_loses_and_doubles_nothing(
    spark, queues, rows, write, stored, tmp_path, mode
):
    queue, mapped, struck = queues.make(), tmp_path / "mapped", tmp_path / "struck"
    folder = spark.sparkContext.getConf().get("spark.local.dir")

    def notes(number):
        if number == 0:
            with mapped.open("a") as file:
                file.write("x")
        return True

    def strikes(number):
        if not struck.exists():
            struck.touch()
            for each in Path(folder).rglob("shuffle_*"):
                each.unlink()
        return True

    before, after = (
        F.udf(each, "boolean").asNondeterministic() for each in (notes, strikes)
    )  # Spark moves no such function past the shuffle
    write(
        rows().where(before(F.col("body").cast("string").cast("int"))).repartition(6, "id").where(after(F.col("body"))),
        queue,
        mode=mode,
        jobKey="fetch",
    )

    assert struck.exists()
    assert len(mapped.read_text()) > 1  # the stage below the shuffle ran again, because its files could not be fetched
    assert stored(queue) == list(range(ROWS))


def test_a_direct_write_is_refused_where_the_pipe_of_its_rows_is_not_found():
    with pytest.raises(SettingsError, match="cannot find the pipe of the task's rows"):
        pipe_of_task()  # this thread runs no task


@pytest.mark.parametrize("found", [b"", b"\xff\xff\xff\xfd", b"\x00"])
def test_a_pipe_without_its_end_mark_has_broken_off(found):
    with pytest.raises(SparkFailed, match="broke off"):
        check_complete(BufferedReader(BytesIO(found)))


@pytest.mark.parametrize("found", [b"\xff\xff\xff\xfc", b"\xff", b"\xff\xff\xff\xfcmore"])
def test_a_pipe_with_its_end_mark_is_complete_and_keeps_it(found):
    pipe = BufferedReader(BytesIO(found))

    check_complete(pipe)

    assert pipe.read() == found
