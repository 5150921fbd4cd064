"""An archive in an object store, on an S3 server on this machine. Spark has no jar for it, as it comes from the package index."""

import pyarrow as pa
import pytest

from rowpost.archive import maintenance_lock as lock_module
from rowpost.archive.leftovers import find_leftovers
from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.parts import write_parts
from rowpost.archive.table import ArchiveTable, create_table, open_table
from rowpost.errors import SparkFailed, SparkUnavailable
from rowpost.spark.doctor import check_store
from rowpost.spark.explain import to_rowpost_error
from rowpost.spark.stores import check_reachable, hadoop_version, store_of
from tests.support.spark.messages import audit_row
from tests.support.spark.object_store import BUCKET, ObjectStore, object_store

OK, UNAVAILABLE = 0, 4


@pytest.fixture(scope="module")
def store():
    with object_store() as found:
        yield found


@pytest.fixture
def variables(store: ObjectStore, monkeypatch):
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def table(variables, request) -> ArchiveTable:
    return create_table(f"s3a://{BUCKET}/{request.node.originalname}")


def written(table: ArchiveTable, name: str, rows: int = 3):
    """Write a file of the table, as a task does."""
    schema = table.arrow_schema
    batch = pa.RecordBatch.from_pydict(
        {
            "row_version": list(range(rows)),
            "queue": ["audit"] * rows,
            "day": [pa.scalar("2024-05-17").cast(pa.date32()).as_py()] * rows,
        }
    )
    return list(write_parts([batch], table.folder.path, schema, name))


def test_files_are_committed_and_listed(table):
    new = written(table, "a")

    assert table.commit(new, batches={"q": 0}, note={"job": "archive"})

    again = open_table(table.address)
    assert [(file.queue, file.day, file.rows, file.is_in_own_folder) for file in again.files()] == [
        ("audit", "2024-05-17", 3, True)
    ]
    assert again.last_batch("q") == 0
    assert find_leftovers(again) == []


def test_of_two_commits_on_one_snapshot_one_is_refused(table):
    other = open_table(table.address)

    assert table.commit(written(table, "a"), note={"job": "archive"})
    assert not other.commit(written(other, "b"), note={"job": "archive"})

    other.refresh()
    assert other.version == 1 and len(other.files()) == 1
    (leftover,) = find_leftovers(other)
    assert not leftover.is_over
    other.folder.delete([leftover.path])
    assert find_leftovers(other) == []


def test_replaced_files_are_deleted_by_vacuum(table):
    table.commit(written(table, "a"), note={"job": "archive"})
    (old,) = table.files()
    table.commit(written(table, "b"), [old], note={"job": "compact"})

    assert table.replaced() == [old.path]
    assert table.vacuum(at_once=True) == [old.path]
    assert not table.folder.exists(old.path)


def test_a_lock_refuses_a_second_job(table, monkeypatch):
    monkeypatch.setattr(lock_module, "_POLL_S", 0.01)

    with maintenance_lock(table.folder, "compact"), pytest.raises(SparkFailed, match="compact has been running"):
        with maintenance_lock(table.folder, "retain", wait_s=0):
            pass

    assert table.folder.read("maintenance.json") is None
    with maintenance_lock(table.folder, "retain", wait_s=0):
        assert table.folder.read("maintenance.json")["job"] == "retain"


def test_a_checkpoint_in_a_store_that_spark_cannot_reach_is_refused_with_the_jar_that_fits(spark):
    with pytest.raises(
        SparkUnavailable, match=rf"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}.*--checkpoint"
    ):
        check_reachable(spark, "s3a://lake/c")


@pytest.mark.parametrize(
    ("scheme", "jar"), [("s3a", "hadoop-aws"), ("s3", "hadoop-aws"), ("abfss", "hadoop-azure"), ("gs", "gc")]
)
def test_what_spark_says_without_the_jar_is_translated(spark, scheme, jar):
    with pytest.raises(Exception) as raised:
        spark.read.text(f"{scheme}://bucket@host/x").collect()

    said = to_rowpost_error(raised.value)

    assert (
        isinstance(said, SparkUnavailable) and store_of(f"{scheme}://x").coordinates in str(said) and jar in str(said)
    )


def test_the_doctor_names_the_jar_and_the_variables(spark, variables):
    listed, spark_has = check_store(spark, f"s3a://{BUCKET}/none")
    assert (listed.state, spark_has.state) == ("ok", "note")
    assert f"hadoop-aws:{hadoop_version()}" in spark_has.advice

    refused, _ = check_store(spark, "s3a://no-such-bucket/none", {})
    assert refused.state == "bad" and "AWS_REGION or AWS_DEFAULT_REGION" in refused.advice


@pytest.fixture
def in_workers(spark, variables, store):
    """Let Spark's workers have the variables of the store too. The JVM started without them."""
    before = dict(spark.sparkContext.environment)
    spark.sparkContext.environment.update(store.variables)
    yield
    spark.sparkContext.environment.clear()
    spark.sparkContext.environment.update(before)


@pytest.mark.usefixtures("in_workers")
def test_a_queue_is_archived_in_a_store_without_a_jar_and_what_reads_it_names_the_jar(queues, cli, tmp_path):
    queue, out = queues.make(), f"s3a://{BUCKET}/whole"
    queues.send(queue, [b"%d" % n for n in range(30)], audit_row()[5])

    refused = cli("archive", queue, out)
    ended = [cli("archive", queue, out, "--checkpoint", tmp_path / "c", "--max-rows", 20), cli("compact", out)]
    reading = cli("verify", out)

    assert (refused[0], reading[0]) == (UNAVAILABLE, UNAVAILABLE)
    assert "--checkpoint" in refused[2] and f"hadoop-aws:{hadoop_version()}" in reading[2]
    assert [code for code, *_ in ended] == [OK, OK], ended
    assert not any(
        word in f"{counts} {said}"
        for _, counts, said in (refused, reading, *ended)
        for word in ("marker-secret", "Traceback")
    )
    assert [file.rows for file in open_table(out).files()] == [30]
