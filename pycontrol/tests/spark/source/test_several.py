"""One stream reads several queues, each with an offset of its own: what each run reads, and what is refused."""

import json
import uuid
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from typer.testing import CliRunner

from rowpost.archive.source.cuts import Bounds, shares
from rowpost.archive.source.queue_stream import StreamRefused
from rowpost.cli.app import app
from rowpost.deploy.queues import forget_queue
from rowpost.errors import SettingsError
from rowpost.spark.jobs.archive import read_archive, start_query
from rowpost.spark.source.checkpoint import committed_offset
from rowpost.spark.source.options import read_options
from tests.support.spark.archives import archived_rows
from tests.support.spark.engine import Engine
from tests.support.spark.killing import fill, kill_until_done, python_of

PYCONTROL = Path(__file__).parents[3]


@pytest.fixture
def prefix():
    return f"s{uuid.uuid4().hex[:6]}"


@pytest.fixture
def run(queues, tmp_path):
    """Run a stream of Spark until it has read all messages. Returns the messages of all runs so far, by queue."""
    found = defaultdict(list)

    def write(df, _):
        for row in df.select("queue", "body").collect():
            found[row.queue].append(int(bytes(row.body)))

    def go(spark_queues=queues, **options):
        reader = queues.spark.readStream.format("rowpost").option("environment", spark_queues.environment)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        writer = reader.load().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "c"))
        query = start_query(writer, every=None)
        query.awaitTermination()
        go.batches = [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
        return {queue: sorted(bodies) for queue, bodies in found.items()}

    return go


@pytest.fixture
def plain(queues):
    """Run a stream as Spark would. Returns the messages of all runs so far, by queue."""
    engine = Engine(queues.environment)

    def go(**options):
        found = defaultdict(list)
        for row in engine.run(**options):
            found[row["queue"]].append(int(row["body"]))
        go.batches = engine.batches
        return {queue: sorted(bodies) for queue, bodies in found.items()}

    go.engine = engine
    return go


def numbered(first, last):
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.spark_promise
@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_list_of_queues_is_read_with_the_name_of_each(queues, run, mode):
    one, other = queues.make(), queues.make()
    queues.send(one, numbered(0, 30))
    queues.send(other, numbered(0, 10))

    first = run(subscribe=f"{one}, {other}", mode=mode)
    queues.send(other, numbered(10, 15))
    second = run(subscribe=f"{one},{other}", mode=mode)

    assert first == {one: list(range(30)), other: list(range(10))}
    assert second == {one: list(range(30)), other: list(range(15))}
    assert (queues.depth(one), queues.depth(other)) == ((30, 15) if mode == "tail" else (0, 0))


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_batch_is_shared_so_that_a_small_queue_does_not_wait_for_a_large_one(queues, plain, mode):
    large, small = queues.make(), queues.make()
    queues.send(large, numbered(0, 100))
    queues.send(small, numbered(0, 5))

    found = plain(subscribe=f"{large},{small}", mode=mode, maxOffsetsPerTrigger=40)

    assert found == {large: list(range(100)), small: list(range(5))}
    assert plain.batches == [40, 40, 25]


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_a_pattern_finds_new_queues_and_reads_them_from_their_beginning(queues, plain, prefix, mode):
    one, unrelated = queues.make(f"{prefix}audit1"), queues.make(f"{prefix}error")
    queues.send(one, numbered(0, 3))
    queues.send(unrelated, numbered(0, 9))
    first = plain(subscribePattern=f"{prefix}audit.*", startingOffsets="earliest", mode=mode)
    queues.send(queues.make(f"{prefix}audit2"), numbered(0, 4))

    second = plain(subscribePattern=f"{prefix}audit.*", startingOffsets="latest", mode=mode)

    assert first == {one: [0, 1, 2]}
    assert second == {one: [0, 1, 2], f"{prefix}audit2": [0, 1, 2, 3]}


def test_a_queue_of_a_pattern_that_is_gone_is_refused_unless_its_loss_is_accepted(queues, plain, prefix):
    one, other = queues.make(f"{prefix}a"), queues.make(f"{prefix}b")
    queues.send(one, numbered(0, 3))
    plain(subscribePattern=f"{prefix}.*")
    with queues.connect() as database:
        forget_queue(database, other)
    queues.send(one, numbered(3, 5))

    with pytest.raises(StreamRefused, match=f"queue {other} of this stream is gone"):
        plain(subscribePattern=f"{prefix}.*")
    assert plain(subscribePattern=f"{prefix}.*", failOnDataLoss="false") == {one: [0, 1, 2, 3, 4]}


def test_a_queue_that_is_left_out_and_comes_back_is_read_on(queues, plain):
    a, b, c = (queues.make() for _ in range(3))
    for queue in (a, b, c):
        queues.send(queue, numbered(0, 3))

    plain(subscribe=f"{a},{b}")
    plain(subscribe=f"{a},{c}")
    queues.send(b, numbered(3, 5))

    assert plain(subscribe=f"{a},{b},{c}") == {a: [0, 1, 2], b: [0, 1, 2, 3, 4], c: [0, 1, 2]}


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_the_checkpoint_of_one_queue_goes_on_with_several(queues, tmp_path, mode):
    one, other = queues.make(), queues.make()
    queues.send(one, numbered(0, 3))
    out = tmp_path / "out"

    def archive(names):
        ended = CliRunner().invoke(
            app,
            [
                "--env",
                queues.environment,
                "spark",
                "archive",
                names,
                str(out),
                f"--{mode}",
                "--checkpoint",
                str(tmp_path / "c"),
            ],
        )
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout.strip().splitlines()[-1])

    first = archive(one)
    queues.send(one, numbered(3, 5))
    queues.send(other, numbered(0, 4))
    second = archive(f"{one},{other}")

    assert (first["messages"], second["messages"], second["queue"]) == (3, 6, f"{one},{other}")
    found = Counter((row["queue"], int(row["body"])) for row in archived_rows(out, "queue", "body"))
    assert found == Counter([(one, n) for n in range(5)] + [(other, n) for n in range(4)])
    assert sorted(committed_offset(tmp_path / "c")["queues"]) == sorted([one, other])
    assert [queues.spooled(one), queues.spooled(other)] == [0, 0]


@pytest.mark.spark_promise
def test_each_queue_has_its_own_transactions_that_hold_it_back(queues, plain):
    one, other = queues.make(), queues.make()
    queues.send(one, numbered(0, 3))
    queues.send(other, numbered(0, 3))

    with queues.connect() as database:
        database.begin()
        database.driver_connection.execute(f"INSERT INTO public.\"{one}\" (id, headers) VALUES (gen_random_uuid(), '')")
        held = plain(subscribe=f"{one},{other}", watermarkTimeoutSeconds=1)
        database.rollback()

    assert held == {other: [0, 1, 2]}
    assert plain(subscribe=f"{one},{other}") == {one: [0, 1, 2], other: [0, 1, 2]}


def test_a_checkpoint_of_a_queue_that_is_not_among_them_is_refused(queues, plain):
    a, b, c = (queues.make() for _ in range(3))
    queues.send(a, numbered(0, 3))
    plain.engine.run(queue=a)

    with pytest.raises(StreamRefused, match="not among those of this stream"):
        plain(subscribe=f"{b},{c}")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribePattern": "a(", }, "regular expression"),
        ({"subscribePattern": "a", "queue": "b"}, "cannot be combined"),
        ({"subscribe": "a,,b"}, "empty name"),
        ({"subscribe": "a,b", "startingOffsets": "7"}, "its own row versions"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(options, says):
    with pytest.raises(SettingsError, match=says):
        read_options(options, stream=True)


def test_one_name_is_one_queue_and_a_comma_in_the_option_queue_belongs_to_the_name():
    assert read_options({"subscribe": "a"}).several is False
    assert read_options({"queue": "a,b"}).several is False
    assert read_options({"subscribe": "a, b,a"}).queues == ("a", "b")


def test_a_batch_reads_one_queue(queues):
    with pytest.raises(PySparkException, match="A batch reads one queue"):
        queues.spark.read.format("rowpost").option("environment", queues.environment).option(
            "subscribe", "a,b"
        ).load().count()


@pytest.mark.parametrize(
    ("limit", "wanted", "expected"),
    [
        (100, {"a": 1000, "b": 10, "c": 1000}, {"a": 45, "b": 10, "c": 45}),
        (10, {"a": 3, "b": 4}, {"a": 3, "b": 4}),
        (1, {"a": 5, "b": 0, "c": 9}, {"a": 1, "b": 0, "c": 1}),
        (7, {}, {}),
    ],
)
def test_rows_are_shared_between_backlogs(limit, wanted, expected):
    assert shares(limit, wanted) == expected


def test_bytes_are_shared_by_the_queues_that_have_messages_and_each_gets_one_message():
    wanted = {"a": 1000, "b": 0, "c": 3}

    assert Bounds(None, 100).shared(wanted) == dict.fromkeys(wanted, Bounds(None, 50))
    assert Bounds(4, 1).shared(wanted) == {"a": Bounds(2, 1), "b": Bounds(1, 1), "c": Bounds(2, 1)}


@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_several_queues_outlive_a_restart(served, mode):
    server, queues = served
    one, other = queues.make(), queues.make()
    engine = Engine(queues.environment)
    reader = engine.reader(subscribe=f"{one},{other}", mode=mode)
    for queue in (one, other):
        queues.send(queue, numbered(0, 20))
    engine.batch(reader)

    server.stop()
    server.start()
    for queue in (one, other):
        queues.send(queue, numbered(20, 30))
    after = engine.batch(reader)
    reader.stop()

    assert Counter((row["queue"], int(row["body"])) for row in after) == Counter(
        (queue, n) for queue in (one, other) for n in range(20, 30)
    )
    assert len(engine.found["checkpoint"]) == 60


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["tail", "drain"])
def test_several_queues_survive_kills(queues, spark_url, prefix, tmp_path, mode):
    names, out, checkpoint, each = [f"{prefix}{name}" for name in "abc"], tmp_path / "out", tmp_path / "c", 20_000
    for name in names:
        fill(queues, queues.make(name), each, "{}")

    def written():
        return max((int(path.name) for path in checkpoint.glob("offsets/*") if path.name.isdecimal()), default=-1)

    killed = kill_until_done(
        ["--env", queues.environment, "spark", "archive", ",".join(names), str(out), f"--{mode}", "--max-rows", "2000", "--checkpoint", str(checkpoint),
         "--conf", "spark.driver.memory=1g", "--master", "local[2,4]"],
        {**python_of(PYCONTROL), "ROWPOST_SPARK_TEST_URL": spark_url}, written, kills=5, longest=2.0, log=tmp_path / "log", seed=7,
    )  # fmt: skip

    rows = [
        (row.queue, int(bytes(row.body)))
        for row in read_archive(queues.spark, str(out)).select("queue", "body").collect()
    ]
    print(f"{mode}: {dict(killed)}; {len(rows)} rows, {len(set(rows))} messages")
    assert len(rows) == len(set(rows)) == 3 * each
    assert [queues.spooled(name) for name in names] == [0, 0, 0]
