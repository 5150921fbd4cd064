"""The archive: the folder of a message, and repeated batches."""

import json
from datetime import UTC, date, datetime, timedelta

import pytest

from rowpost.errors import ArchiveNotFound, SparkFailed
from rowpost.spark.archive.folder import ArchiveFolder
from rowpost.spark.archive.schemas import ARCHIVE
from rowpost.spark.explain import explained
from rowpost.spark.jobs.archive import BatchWriter, archive, read_archive
from rowpost.wire.message import format_timestamp
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw

FAR = datetime(2999, 1, 1, tzinfo=UTC)


@pytest.fixture
def checkpoint(tmp_path):
    """The checkpoint that Spark writes before the first batch of a query."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "1f0c2a9e-0000-0000-0000-000000000000"}))
    return str(folder)


def days(df) -> set[date]:
    return {row.day for row in df.collect()}


def test_the_archive_has_the_columns_of_its_schema(spark):
    df = archive(messages(spark, audit_row()), "audit")

    assert [(c.name, c.dataType) for c in df.schema] == [(c.name, c.dataType) for c in ARCHIVE]


def test_the_day_is_that_of_the_handling_else_of_the_failure_else_of_the_sending(spark):
    midnight = datetime(2024, 5, 16, 23, 59, 59, tzinfo=UTC)
    handled, failed = audit_row(sent=midnight), error_row(at=midnight)
    sent = audit_row(sent=midnight, ProcessingEnded=None)

    assert days(archive(messages(spark, handled), "audit")) == {date(2024, 5, 17)}
    assert days(archive(messages(spark, failed, sent), "error")) == {date(2024, 5, 16)}


def test_rows_without_headers_with_broken_ones_or_times_of_no_clock_get_the_day_of_their_arrival(spark):
    future = audit_row(sent=FAR)
    past = audit_row(TimeSent="0001-01-01 00:00:00:000000 Z", ProcessingEnded=None)

    df = archive(messages(spark, raw(""), raw("{broken"), future, past), "audit")

    assert days(df) == {datetime.now(UTC).date()}
    assert {row.processing_ended for row in df.collect()} == {None, (FAR + timedelta(seconds=1.5)).replace(tzinfo=None)}


def test_a_time_of_a_clock_that_is_a_little_ahead_counts(spark):
    soon = datetime.now(UTC) + timedelta(hours=20)

    assert days(archive(messages(spark, audit_row(ProcessingEnded=format_timestamp(soon))), "audit")) == {soon.date()}


def test_a_batch_that_is_written_twice_is_there_once_and_verbatim(spark, tmp_path, checkpoint):
    rows = [audit_row(f"m{n}", sent=NOON + timedelta(days=n % 3), body=bytes([n])) for n in range(30)]
    batch = archive(messages(spark, *rows), "Shop.audit@[odd/schema]")
    write = BatchWriter(str(tmp_path / "out"), checkpoint)

    for number in (0, 1, 1, 0):
        write(batch.where(f"row_version % 2 = {number}"), number)

    kept = read_archive(spark, str(tmp_path / "out")).collect()
    assert sorted((row.id, row.headers, bytes(row.body), row.row_version) for row in kept) == sorted((r[0], r[5], r[6], r[7]) for r in rows)
    assert {(row.queue, row.batch) for row in kept} == {("Shop.audit@[odd/schema]", f"1f0c2a9e-{n}") for n in (0, 1)}


def test_another_query_with_the_same_numbers_replaces_nothing(spark, tmp_path, checkpoint):
    batch = archive(messages(spark, audit_row()), "audit")
    BatchWriter(str(tmp_path / "out"), checkpoint)(batch, 0)
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "2222222222"}))
    BatchWriter(str(tmp_path / "out"), checkpoint)(batch, 0)

    assert read_archive(spark, str(tmp_path / "out")).count() == 2


def test_the_folder_tells_its_batches_as_they_were_written(spark, tmp_path, checkpoint):
    BatchWriter(str(tmp_path / "out"), checkpoint)(archive(messages(spark, audit_row()), "a=b/c %"), 7)

    (batch,) = ArchiveFolder(str(tmp_path / "out")).batches()

    assert (batch.queue, batch.day, batch.number) == ("a=b/c %", "2024-05-17", ("1f0c2a9e", 7))
    assert len(batch.files) == 1 and batch.bytes > 0


def test_a_delta_table_has_a_batch_once_too(spark, tmp_path, checkpoint):
    pytest.importorskip("deltalake", reason="the extra [delta] is not installed")
    batch = archive(messages(spark, audit_row("m1"), audit_row("m2")), "audit")
    write = BatchWriter(str(tmp_path / "out"), checkpoint, "delta")

    for number in (0, 0, 1, 1):
        write(batch, number)

    assert read_archive(spark, str(tmp_path / "out")).count() == 4


def test_an_archive_that_is_not_there_is_not_found(spark, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with pytest.raises(ArchiveNotFound, match=name):
            read_archive(spark, str(tmp_path / name))


def test_a_file_that_was_not_written_to_its_end_is_named(spark, tmp_path, checkpoint):
    BatchWriter(str(tmp_path / "out"), checkpoint)(archive(messages(spark, audit_row()), "audit"), 0)
    (path,) = (tmp_path / "out").rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(SparkFailed, match=path.name), explained():
        read_archive(spark, str(tmp_path / "out")).collect()
