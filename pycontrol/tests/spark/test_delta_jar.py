"""An archive beside Delta's own jars: Spark reads it as a Delta table, changes it, and rowpost goes on or says in one sentence why not.

A process has only one JVM, so that each session with the jars is a process of its own. ROWPOST_TEST_DELTA_JARS names the jars, with
commas between them, for the Spark that runs the tests: `make test/spark-version ARGS="-k delta_jar"`.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rowpost.archive.merging import compact
from rowpost.errors import SparkFailed
from rowpost.spark.jobs import erase, verify
from rowpost.spark.jobs.archive import read_archive
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.killing import python_of
from tests.support.spark.messages import audit_row

PYCONTROL = Path(__file__).parents[2]
JARS = os.environ.get("ROWPOST_TEST_DELTA_JARS", "")
#: executes statements, and prints what Delta and rowpost read then
SESSION = """
import json, sys
from rowpost.errors import SparkFailed
from rowpost.spark.jobs import verify
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.session import session
path, jars, statements = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
spark = session("delta", master="local[2]", config={
    "spark.jars": jars, "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension", "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog", "spark.driver.memory": "1g"})
for statement in statements:
    spark.sql(statement.format(table=f"delta.`{path}`"))
rows = lambda frame: sorted([row.message_id, row.queue, str(row.day), row.row_version, bytes(row.body).decode()] for row in frame.collect())
found = {"delta": rows(spark.read.format("delta").load(path)), "rowpost": rows(read_archive(spark, path))}
checked = verify.run(spark, path)
found["verify"] = {"messages": checked.counts["messages"], "findings": [each.kind for each in checked.findings]}
if sys.argv[5]:  # a stream goes on where it was in the session before
    stream = spark.readStream.format("delta").load(path).writeStream.option("checkpointLocation", sys.argv[5] + "/state")
    stream.trigger(availableNow=True).start(sys.argv[5] + "/rows").awaitTermination()
    found["streamed"] = rows(spark.read.schema("message_id string, queue string, day date, row_version bigint, body binary").parquet(sys.argv[5] + "/rows"))
if sys.argv[4]:
    found["then"] = rows(spark.read.format("delta").option("versionAsOf", sys.argv[4]).load(path))
found["history"] = [row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{path}`").orderBy("version").collect()]
print(json.dumps(found))
spark.stop()
"""

pytestmark = [
    pytest.mark.spark_version,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not JARS,
        reason="needs Maven's io.delta:delta-spark_2.13 and io.delta:delta-storage for this Spark; name the paths of the jars in ROWPOST_TEST_DELTA_JARS",
    ),
]


@pytest.fixture
def made(spark, tmp_path):
    """An archive of three batches with two messages each."""
    made = ArchiveMaker(tmp_path / "made")
    for number in range(3):
        made.batch(number, [audit_row(f"m{number}{n}", body=b"%d" % n) for n in range(2)])
    return made


@pytest.fixture
def delta(made, tmp_path):
    """Execute statements in a session with the jars. Returns what Delta and rowpost read there afterwards, and what Delta reads of an earlier version."""

    def run(*statements: str, version: str = "", stream: str = "") -> dict:
        done = subprocess.run(
            [sys.executable, "-c", SESSION, str(made.path), JARS, json.dumps(statements), version, stream and str(tmp_path / stream)],
            env=python_of(PYCONTROL), capture_output=True, text=True, cwd=tmp_path, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def names(rows) -> list[str]:
    return [row[0] for row in rows]


def archived(spark, made) -> list[str]:
    return sorted(row.message_id for row in read_archive(spark, str(made.path)).select("message_id").collect())


def test_delta_reads_what_rowpost_has_written_merged_and_erased(spark, made, delta):
    first = delta(stream="stream")
    compact(str(made.path), datetime.now(UTC))
    merged = delta(version="1", stream="stream")
    erase.run(spark, str(made.path), erase.Erasure(where="message_id = 'm10'"), reason="a test", now=datetime.now(UTC))
    last = delta()

    assert names(first["delta"]) == names(merged["delta"]) == ["m00", "m01", "m10", "m11", "m20", "m21"]
    assert names(merged["then"]) == ["m00", "m01"]
    assert first["streamed"] == merged["streamed"] == first["delta"]  # a merge changes no rows
    assert names(last["delta"]) == ["m00", "m01", "m11", "m20", "m21"]
    assert all(each["delta"] == each["rowpost"] for each in (first, merged, last))
    assert len(last["history"]) > len(merged["history"]) > len(first["history"]) == 4


def test_rowpost_goes_on_after_delta_has_merged_and_deleted(spark, made, delta):
    changed = delta("OPTIMIZE {table}", "DELETE FROM {table} WHERE message_id = 'm11'")
    made.batch(3, [audit_row("m30")])
    compact(str(made.path), datetime.now(UTC))

    assert names(changed["delta"]) == names(changed["rowpost"]) == ["m00", "m01", "m10", "m20", "m21"]
    assert archived(spark, made) == ["m00", "m01", "m10", "m20", "m21", "m30"]
    assert verify.run(spark, str(made.path)).findings == []
    assert names(delta()["delta"]) == archived(spark, made)


def test_deletion_vectors_are_read_with_the_jar_and_refused_without_it_until_they_are_purged(spark, made, delta):
    marked = delta(
        "OPTIMIZE {table}",
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)",
        "DELETE FROM {table} WHERE message_id = 'm11'",
    )

    assert names(marked["delta"]) == names(marked["rowpost"]) == ["m00", "m01", "m10", "m20", "m21"]
    assert marked["verify"] == {"messages": 5, "findings": []}
    with pytest.raises(SparkFailed, match="deletion vectors"):
        read_archive(spark, str(made.path))
    with pytest.raises(SparkFailed, match="deletion vectors"):
        made.batch(3, [audit_row("m30")])

    delta(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = false)",
        "REORG TABLE {table} APPLY (PURGE)",
    )
    made.batch(3, [audit_row("m30")])
    assert archived(spark, made) == names(delta()["delta"]) == ["m00", "m01", "m10", "m20", "m21", "m30"]


def test_column_mapping_is_read_with_the_jar_and_refused_without_it(spark, made, delta):
    mapped = delta(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')",
        "ALTER TABLE {table} RENAME COLUMN machine TO computer",
    )

    assert names(mapped["delta"]) == names(mapped["rowpost"]) == ["m00", "m01", "m10", "m11", "m20", "m21"]
    with pytest.raises(SparkFailed, match="column mapping"):
        read_archive(spark, str(made.path))
    with pytest.raises(SparkFailed, match="column mapping"):
        made.batch(3, [audit_row("m30")])


def test_erase_reaches_the_change_data_of_deltas_own_deletions(spark, made, delta, tmp_path):
    person = "Ada-Lovelace-1815"
    made.batch(3, [audit_row(person, body=person.encode()), audit_row("m31")])
    delta(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = true)",
        f"DELETE FROM {{table}} WHERE message_id = '{person}'",
    )
    assert verify.absent(spark, str(made.path), [person])

    erase.run(
        spark, str(made.path), erase.Erasure(where=f"message_id = '{person}'"), reason="a test", now=datetime.now(UTC)
    )

    left = [finding.what for finding in verify.absent(spark, str(made.path), [person])]
    assert all(path.startswith("_delta_log/") for path in left), left  # the condition of Delta's own DELETE
    assert archived(spark, made) == ["m00", "m01", "m10", "m11", "m20", "m21", "m31"]
