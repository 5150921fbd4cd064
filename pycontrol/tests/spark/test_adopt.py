"""An archive of an earlier version becomes a Delta table: no file is copied, no message lost or doubled."""

import json
import shutil
from pathlib import Path

import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from rowpost.errors import ArchiveNotFound, SparkFailed
from rowpost.spark.archive.opening import open_table
from rowpost.spark.archive.searching import contains
from rowpost.spark.jobs import adopt, erase, verify
from rowpost.spark.jobs.archive import archive, read_archive
from tests.support.spark.archives import QUERY, ArchiveMaker, old_archive
from tests.support.spark.messages import NOON, audit_row, messages

KEY = QUERY[:8]
MARKER = "Ada-Lovelace-1815"


@pytest.fixture
def made(spark, tmp_path) -> ArchiveMaker:
    """An archive of an earlier version with three batches, and a stream that can go on."""
    made = ArchiveMaker(spark, tmp_path)
    odd = {"ReplyToAddress": MARKER, "OriginatingMachine": MARKER, "x.Customer": MARKER}
    old_archive(spark, made.path, {f"{KEY}-{n}": [audit_row(f"m{n}", sent=NOON, body=MARKER.encode(), **odd)] for n in range(3)}, "a=b/c %")
    return made


def checkpoint(path: Path, committed: int) -> Path:
    """Write what Spark's checkpoint has of the query and its committed batches."""
    (path / "commits").mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": QUERY}))
    for number in range(committed + 1):
        (path / "commits" / str(number)).write_text("v1\n{}")
    return path


def ids(spark, path: Path) -> list[str]:
    return sorted(row.message_id for row in read_archive(spark, str(path)).select("message_id").collect())


def test_its_files_stay_where_they_are_and_the_stream_goes_on(spark, made):
    before = {path: path.stat().st_mtime_ns for path in made.path.rglob("*.parquet")}

    done = adopt.run(str(made.path))

    assert (done["files"], done["messages"], done["streams"], done["without_checkpoint"]) == (3, 3, 1, [KEY])
    assert {path: path.stat().st_mtime_ns for path in made.path.rglob("queue=*/**/*.parquet")} == before
    made.batch(2, [audit_row("m2")], "a=b/c %")  # repeated
    made.batch(3, [audit_row("m3")], "a=b/c %")
    assert ids(spark, made.path) == ["m0", "m1", "m2", "m3"]
    assert {(row.queue, str(row.day)) for row in read_archive(spark, str(made.path)).collect()} == {("a=b/c %", "2024-05-17")}
    report = verify.run(spark, str(made.path))
    assert (report.findings, report.notes) == ([], [])


def test_the_log_has_no_value_of_a_message(made):
    adopt.run(str(made.path))

    log = (made.path / "_delta_log" / f"{0:020}.json").read_text()
    assert MARKER not in log and "numRecords" in log and "2024-05-17T12:00:00" in log


def test_a_last_batch_that_spark_repeats_is_left_to_spark(spark, made, tmp_path):
    done = adopt.run(str(made.path), [str(checkpoint(tmp_path / "checkpoint", committed=1))])

    assert (done["repeated_batches"], done["without_checkpoint"]) == (1, [])
    assert ids(spark, made.path) == ["m0", "m1"]
    assert not list(made.path.rglob(f"batch={KEY}-2/*.parquet"))
    made.batch(2, [audit_row("m2")], "a=b/c %")
    assert ids(spark, made.path) == ["m0", "m1", "m2"]


def test_a_checkpoint_in_the_archive_is_found(made):
    checkpoint(made.path / "_rowpost" / "checkpoints" / "audit-tail", committed=2)

    assert adopt.run(str(made.path))["repeated_batches"] == 0
    assert open_table(str(made.path)).last_batch(QUERY) == 2


def test_a_change_that_was_interrupted_is_finished(spark, made):
    """A merge of the first two batches that was killed when one of them was deleted and the new file was not moved yet."""
    (day,) = made.path.glob("queue=*/day=*")
    new = made.path / "_rowpost" / "new" / "changed-1"
    old_archive(spark, made.folder / "merged", {"changed-1": [audit_row("m0"), audit_row("m1")]}, "a=b/c %")
    shutil.move(next((made.folder / "merged").glob("queue=*/day=*/batch=*")), new / "batch=changed-1")
    old = [str(path.relative_to(made.path)) for number in (0, 1) for path in (day / f"batch={KEY}-{number}").glob("*.parquet")]
    intent = {
        "name": "changed-1",
        "batches": [f"{KEY}-0", f"{KEY}-1"],
        "old": old,
        "new": "_rowpost/new/changed-1",
        "place": str(day.relative_to(made.path)),
    }
    (made.path / "_rowpost" / "intents").mkdir()
    (made.path / "_rowpost" / "intents" / "changed-1.json").write_text(json.dumps(intent))
    (made.path / old[0]).unlink()

    adopt.run(str(made.path))

    assert ids(spark, made.path) == ["m0", "m1", "m2"]
    assert verify.run(spark, str(made.path)).notes == []


def test_an_incomplete_file_is_named_and_nothing_is_changed(made):
    path = next(made.path.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(SparkFailed, match=path.name):
        adopt.run(str(made.path))
    assert not (made.path / "_delta_log").exists()


def test_what_cannot_be_taken_over_is_refused(made, tmp_path):
    with pytest.raises(SparkFailed, match="no file metadata"):
        adopt.run(str(made.path), [str(tmp_path)[:-1] + "none"])
    adopt.run(str(made.path))
    with pytest.raises(SparkFailed, match="already"):
        adopt.run(str(made.path))
    with pytest.raises(ArchiveNotFound):
        adopt.run(str(tmp_path / "none"))


def test_the_log_of_a_table_with_statistics_of_all_columns_is_replaced(spark, made, tmp_path):
    """A table as an earlier version made it with --format delta."""
    path, row = tmp_path / "delta", archive(messages(spark, audit_row(f"{MARKER}-0")), "audit").toArrow()
    for number in range(101):  # the log has a checkpoint after a hundred entries
        done = CommitProperties(app_transactions=[Transaction(KEY, number)])
        rows = row if number == 0 else row.slice(0, 0)
        write_deltalake(path, rows, mode="append", partition_by=["queue", "day"], commit_properties=done)
    assert any(contains(str(path), f"_delta_log/{name.name}", MARKER) for name in (path / "_delta_log").iterdir())
    with pytest.raises(SparkFailed, match="adopt"):
        erase.run(spark, str(path), erase.Selection(where="true"), "request 17", NOON)

    assert adopt.run(str(path))["messages"] == 1

    assert not any(contains(str(path), f"_delta_log/{name.name}", MARKER) for name in (path / "_delta_log").iterdir())
    assert ids(spark, path) == [f"{MARKER}-0"] and open_table(str(path)).last_batch(QUERY) == 100
    erase.run(spark, str(path), erase.Selection(where="true"), "request 17", NOON)
    assert verify.absent(spark, str(path), [MARKER]) == []
