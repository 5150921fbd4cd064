"""The options of the data source are a closed list, and a URL or a password is never one of them."""

import pytest
from pyspark.errors import PySparkException

from rowpost.errors import SettingsError
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source import options as source_options
from rowpost.spark.source.options import read_options, write_options
from rowpost.spark.source.source import QueueSource

MARKER = "marker-Zx81qP"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("startingOffset", "did you mean startingOffsets"),
        ("STARTINGOFFSET", "did you mean startingOffsets"),
        ("minPartition", "did you mean minPartitions"),
        ("failOnDataloss1", "did you mean failOnDataLoss"),
        ("startingTimestamp", "does not store when a message was sent"),
        ("maxTriggerDelay", "interval of the trigger"),
        ("groupIdPrefix", "no consumer groups"),
        ("nonsense", "the options of a stream are queue"),
        ("jobKey", "not for a stream"),
        ("slot", "mode=log is gone"),
        ("availableNow", "trigger"),
    ],
)
def test_an_unknown_option_is_refused_with_the_known_one_that_is_nearest(name, says):
    with pytest.raises(SettingsError, match=says):
        read_options({"queue": "a", name: "1"}, stream=True)


def test_a_stream_of_the_log_is_refused_with_what_to_use_instead():
    with pytest.raises(SettingsError, match=r"mode=log is gone: .* the audit queue, with mode=tail or mode=drain"):
        read_options({"queue": "a", "mode": "log"}, stream=True)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("maxOffsetsPerTrigger", "not for a batch read"),
        ("mode", "not for a batch read"),
        ("failOnDataLoss", "not for a batch read"),
    ],
)
def test_an_option_of_streams_is_refused_in_a_batch_read(name, says):
    with pytest.raises(SettingsError, match=says):
        read_options({"queue": "a", name: "tail"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("jobParts", "not needed any more"),
        ("jobkeys", "did you mean jobKey"),
        ("startingOffsets", "not for a batch write"),
        ("topic", "option queue"),
    ],
)
def test_an_unknown_option_of_a_write_is_refused(name, says):
    with pytest.raises(SettingsError, match=says):
        write_options({"queue": "a", name: "1"})


@pytest.mark.parametrize("name", ["mode", "jobKey"])
def test_a_job_key_and_a_mode_are_refused_for_the_write_of_a_stream(name):
    with pytest.raises(SettingsError, match="not for a stream's write"):
        write_options({"queue": "a", name: "direct"}, stream=True)


def test_every_option_on_the_lists_is_accepted():
    numbers = {
        "minPartitions",
        "maxRecordsPerPartition",
        "maxBytesPerBatch",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "watermarkTimeoutSeconds",
        "messagesPerCall",
        "startingOffsets",
        "endingOffsets",
    }
    flags = {"failOnDataLoss", "allowConsumers", "takeOver", "includeHeaders"}
    values = {
        **dict.fromkeys(numbers, "5000"),
        **dict.fromkeys(flags, "true"),
        "subscribe": "a",
        "queue": "a",
        "jobKey": "k",
        "confirmedOffsets": "{}",
    }

    def of(names, mode):
        return {name: {**values, "mode": mode}.get(name, "local") for name in names}

    assert read_options(of(source_options.BATCH, "")).queue == "a"
    one_queue = [name for name in source_options.STREAM if name != "subscribePattern"]
    assert read_options(
        {**of(one_queue, "drain"), "connectRetrySeconds": "5", "checkpointLocation": "c"}, stream=True
    ).take_over
    assert read_options({"subscribePattern": "a.*"}, stream=True).pattern == "a.*"
    assert write_options(of(source_options.WRITE, "direct")).mode == "direct"
    assert (
        write_options({**of(source_options.STREAM_WRITE, ""), "checkpointLocation": "c"}, stream=True).mode == "staged"
    )


@pytest.mark.parametrize("text", ["5", "{", '{"db/a#1": 5}', '{"db/a#1": {"queue": "db/b#2"}}'])
def test_confirmed_offsets_that_are_not_offsets_by_identity_are_refused(text):
    with pytest.raises(SettingsError, match="confirmedOffsets must be a JSON object"):
        read_options({"queue": "a", "confirmedOffsets": text}, stream=True)


def test_two_different_names_of_the_queue_are_refused():
    with pytest.raises(SettingsError, match="different queues"):
        read_options({"queue": "a", "subscribe": "b"})


SECRETS = [
    {"url": f"postgresql://me:{MARKER}@db/shop"}, {"password": MARKER}, {"user": MARKER}, {"kafka.bootstrap.servers": MARKER},
    {"environment": f"postgresql://me:{MARKER}@db/shop"}, {"queue": f"Server=db;UID=sa;PWD={MARKER}"},
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS, ids=lambda each: next(iter(each)))
@pytest.mark.parametrize("schema", [None, "headers string"])
def test_a_url_or_password_among_the_options_is_refused_before_there_is_a_plan(spark, secret, schema):
    reader = spark.read.format("rowpost").options(**{"queue": "a", **secret})

    with pytest.raises(PySparkException, match="looks like a URL or a password") as raised:
        df = (reader if schema is None else reader.schema(schema)).load()
        logical = (
            df._jdf.queryExecution().analyzed().toString()
        )  # with a schema Spark asks the source for its physical plan only
        assert MARKER not in logical
        df.collect()

    assert MARKER not in str(raised.value)


@pytest.mark.parametrize("secret", SECRETS[:2], ids=lambda each: next(iter(each)))
def test_a_url_or_password_is_refused_in_streams_and_writes(spark, secret):
    options = {"queue": "a", **secret}

    with pytest.raises(PySparkException, match="looks like a URL or a password") as of_a_stream:
        spark.readStream.format("rowpost").options(**options).load()
    with pytest.raises(PySparkException, match="looks like a URL or a password") as of_a_write:
        spark.createDataFrame([("{}", b"x")], "headers string, body binary").write.format("rowpost").options(
            **options
        ).mode("append").save()

    assert MARKER not in str(of_a_stream.value) + str(of_a_write.value)


def test_a_misspelt_option_stops_a_read_in_spark(spark, queues):
    queue = queues.make()

    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        queues.read(queue, startingOffset=900).count()


def test_headers_are_left_out_if_they_are_not_included(queues):
    queue = queues.make()
    queues.send(queue, [b"x"])

    assert "headers" in queues.read(queue).columns
    assert "headers" not in queues.read(queue, includeHeaders=False).columns
    assert [bytes(row.body) for row in queues.read(queue, includeHeaders=False).collect()] == [b"x"]


def test_the_option_columns_names_what_is_read_in_its_order():
    assert QueueSource({"queue": "a"}).schema() == MESSAGE
    assert QueueSource({"queue": "a", "columns": "body, id"}).schema().fieldNames() == ["body", "id"]
    assert QueueSource({"subscribe": "a,b", "columns": "queue,id"}).schema().fieldNames() == ["queue", "id"]


@pytest.mark.parametrize(
    ("options", "says"),
    [({"columns": "id,size"}, "'size' is not a column"), ({"columns": ""}, "'' is not a column"), ({"columns": "id,id"}, "twice"),
     ({"columns": "queue"}, "'queue' is not a column"), ({"columns": "headers", "includeHeaders": "false"}, "'headers' is not a column"),
     ({"columns": "id", "mode": "drain"}, "would be lost")],
)  # fmt: skip
def test_columns_that_a_read_does_not_have_are_refused_with_those_that_it_has(options, says):
    with pytest.raises(SettingsError, match=says):
        QueueSource({"queue": "a", **options}).schema()


def test_a_schema_that_differs_from_the_option_columns_is_refused():
    source = QueueSource({"queue": "a", "columns": "id"})

    for reader in (source.reader, source.streamReader):
        with pytest.raises(SettingsError, match="different columns"):
            reader(MESSAGE)
