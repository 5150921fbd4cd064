"""Reading a queue as a table: values are unchanged, ranges are read in parallel, and only requested columns are read."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from rowpost.archive.source.cuts import Range, divide_visible, split
from rowpost.archive.source.queue_stream import StreamState
from rowpost.errors import PermissionDenied, SettingsError
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.options import read_options, write_options
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage

pytestmark = pytest.mark.spark_version

ID = UUID("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")


@pytest.fixture(scope="module")
def hundred(queues):
    """A queue of a hundred messages, with bodies 0 to 99."""
    queue = queues.make()
    queues.send(queue, [b"%d" % number for number in range(100)], '{"Kind": "plain"}')
    return queue


@pytest.mark.spark_promise
def test_every_column_is_read_as_it_is_stored(queues):
    queue = queues.make()
    large = bytes(range(256)) * 4096
    with queues.connect() as database:
        Queue(queue, database).send_many([
            OutgoingMessage(b"\x00\xff", '{"Ключ": "漢字 \\u0007"}', ID, timedelta(hours=1)),
            OutgoingMessage(None, ""),
            OutgoingMessage(b"", "{}"),
            OutgoingMessage(large, "{}"),
        ])  # fmt: skip
        stored = database.driver_connection.execute(
            f'SELECT id::text, expires, headers, body, seq FROM public."{queue}" ORDER BY seq'
        ).fetchall()

    rows = queues.read(queue).orderBy("row_version").collect()

    assert queues.read(queue).schema == MESSAGE
    assert [
        (row.id, row.expires, row.headers, None if row.body is None else bytes(row.body), row.row_version)
        for row in rows
    ] == stored
    assert rows[0].id == str(ID) and bytes(rows[3].body) == large
    assert {(row.correlation_id, row.reply_to_address, row.recoverable) for row in rows} == {(None, None, True)}
    assert timedelta(minutes=50) < rows[0].expires.replace(tzinfo=UTC) - datetime.now(UTC) < timedelta(minutes=61)


def test_an_empty_queue_is_an_empty_table(queues):
    assert queues.read(queues.make()).count() == 0


@pytest.mark.spark_promise
def test_the_queue_is_read_in_parallel_by_ranges(queues, hundred):
    messages = queues.read(hundred, minPartitions=4)

    assert messages.rdd.getNumPartitions() == 4
    assert messages.select("row_version").distinct().count() == 100


@pytest.fixture
def pushing(spark):
    """Let the session offer filters to the source."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


#: Each kind of filter that Spark offers a source, alone and with others, and filters that it does not offer.
CONDITIONS = [
    "row_version = 7", "row_version IN (3, 5)", "row_version > 90 AND row_version <= 95", "row_version >= 10 AND row_version < 20 AND row_version <> 15",
    "row_version > 200", "body = X'3432'", "headers LIKE '%Kind%'", "headers LIKE '%kind%'", "headers LIKE 'Kind%'",
    "expires IS NULL AND row_version < 4", "expires > now()", "id = 'no uuid'", "row_version > 5 OR id IS NULL",
]  # fmt: skip


@pytest.mark.spark_promise
@pytest.mark.usefixtures("pushing")
def test_filters_give_what_they_give_in_spark(queues, hundred):
    read = queues.read(hundred)
    in_spark = queues.spark.createDataFrame(read.collect(), read.schema)  # only Spark's own filters work on it
    (wanted,) = in_spark.select(
        *(f.sort_array(f.collect_list(f.expr(f"IF({each}, row_version, NULL)"))) for each in CONDITIONS)
    ).collect()

    found = [
        sorted(row.row_version for row in queues.read(hundred).where(each).select("row_version").collect())
        for each in CONDITIONS
    ]

    assert found == list(wanted)
    assert {len(each) for each in found} >= {0, 1, 2, 100}


@pytest.mark.usefixtures("pushing")
def test_ids_are_compared_as_texts(queues, hundred):
    first, second = (row.id for row in queues.read(hundred).limit(2).collect())

    assert queues.read(hundred).where(f.col("id").isin(first, second, "x")).count() == 2
    assert queues.read(hundred).where(f.col("id") == first.upper()).count() == 0


@pytest.mark.usefixtures("pushing")
def test_a_dataframe_that_is_used_again_gives_what_each_query_asks_for(queues, hundred):
    """Spark keeps the ranges of one query for the next ones of the same DataFrame."""
    read = queues.read(hundred)

    found = [
        read.where(each).count() for each in ("row_version = 7", "row_version > 5 OR id IS NULL", "row_version > 98")
    ]

    assert (found, read.count()) == ([1, 95, 2], 100)


def test_columns_that_the_schema_or_the_option_leaves_out_are_not_read(queues, hundred):
    by_schema = (
        queues.reader(queues.spark.read, hundred).schema("row_version bigint not null, headers string not null").load()
    )
    by_option = queues.read(hundred, columns="row_version, headers")

    for narrow in (by_schema, by_option):
        assert narrow.columns == ["row_version", "headers"]
        assert narrow.where("row_version = 1").first().headers == '{"Kind": "plain"}'


def test_batches_are_capped_by_bytes_and_a_larger_message_is_one_of_its_own(queues):
    queue = queues.make()
    queues.send(queue, [bytes(size) for size in (10, 5000, 10, 3000, 3000, 20)])

    sizes = queues.read(queue, maxBytesPerBatch=4096, minPartitions=1).select(
        f.length("body").alias("size"), "row_version"
    )

    assert [row.size for row in sizes.orderBy("row_version").collect()] == [10, 5000, 10, 3000, 3000, 20]


@pytest.mark.spark_promise
@pytest.mark.parametrize(("starting", "ending", "count"), [("earliest", "latest", 100), (90, "latest", 10), (0, 30, 30), (40, 50, 10),
                                                           ("earliest", "watermark", 100), ("latest", "latest", 0)])  # fmt: skip
def test_offsets_bound_what_is_read(queues, hundred, starting, ending, count):
    assert queues.read(hundred, startingOffsets=starting, endingOffsets=ending).count() == count


@pytest.mark.parametrize(
    ("options", "word"),
    [({}, "queue"), ({"queue": "a", "mode": "take"}, "tail or drain"), ({"queue": "a", "startingOffsets": "-1"}, "row version"),
     ({"queue": "a", "minPartitions": "0"}, "minPartitions"), ({"queue": "a", "failOnDataLoss": "no"}, "true or false"),
     ({"queue": "a", "watermarkTimeoutSeconds": "soon"}, "seconds"), ({"queue": "a", "maxOffsetsPerTrigger": "all"}, "whole number")],
)  # fmt: skip
def test_a_wrong_option_is_refused_in_words(options, word):
    with pytest.raises(SettingsError, match=word):
        read_options(options, stream=True)


def test_a_wrong_mode_of_writing_is_refused():
    with pytest.raises(SettingsError, match="staged or direct"):
        write_options({"queue": "a", "mode": "both"})


def test_a_queue_that_is_not_there_and_a_column_that_no_message_has_are_named(queues, hundred):
    with pytest.raises(PySparkException, match="No queue named 'nowhere'"):
        queues.read("nowhere").count()
    with pytest.raises(PySparkException, match="A message has no column size bigint"):
        queues.reader(queues.spark.read, hundred).schema("size bigint").load().count()


def test_a_range_is_split_into_equal_parts_and_none_that_is_empty():
    assert split(10, 10, 4) == [] and split(11, 10, 4) == []
    assert split(0, 3, 8) == [Range(0, 1), Range(1, 2), Range(2, 3)]
    assert split(5, 105, 3) == [Range(5, 38), Range(38, 71), Range(71, 105)]


@pytest.mark.parametrize(
    ("first", "ranges"),
    [
        (51, [Range(0, 75), Range(75, 100)]),
        (1, [Range(0, 50), Range(50, 100)]),
        (None, [Range(0, 100)]),
        (101, [Range(0, 100)]),
    ],
)
def test_a_range_is_split_where_messages_are_and_read_from_its_start(first, ranges):
    assert divide_visible(0, 100, first, 2, []) == ranges


def test_ranges_have_about_the_same_bytes_although_row_versions_have_holes(queues):
    queue = queues.make()
    queues.send(queue, [bytes(20_000 if number > 950 else 2000) for number in range(1, 1001)])
    with queues.connect() as database:
        database.driver_connection.execute(f'DELETE FROM public."{queue}" WHERE seq BETWEEN 101 AND 900')

    rows = (
        queues.read(queue, minPartitions=4)
        .select(f.octet_length("body").alias("size"), f.spark_partition_id().alias("part"))
        .collect()
    )

    assert len(rows) == 200
    assert all(200_000 < sum(row["size"] for row in rows if row.part == part) < 450_000 for part in range(4))


def test_a_partition_has_at_most_so_many_messages(queues, hundred):
    part = f.spark_partition_id().alias("part")

    whole = queues.read(hundred, minPartitions=1, maxRecordsPerPartition=30).groupBy(part).count().collect()
    seen = []
    stream = queues.stream(hundred, minPartitions=1, maxRecordsPerPartition=30).select(part)
    query = (
        stream.writeStream.foreachBatch(lambda df, _: seen.extend(df.groupBy("part").count().collect()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    for found in (whole, seen):
        assert sum(row["count"] for row in found) == 100 and max(row["count"] for row in found) <= 30


def test_a_login_that_may_not_see_who_writes_is_told_which_right_it_needs():
    state = StreamState("Sales", 1, 100, None, None, 0)

    with pytest.raises(PermissionDenied, match="VIEW SERVER STATE"):
        _ = state.poll
