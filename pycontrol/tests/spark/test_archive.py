"""The archive: the folder of a message, and repeated batches."""

import base64
import json
import struct
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake

from rowpost.archive.parts import NewFile
from rowpost.archive.table import create_table, open_table
from rowpost.errors import ArchiveNotFound, SparkFailed
from rowpost.spark.archive.schemas import ARCHIVE, LIVE
from rowpost.spark.explain import explained
from rowpost.spark.jobs import decode, erase, retain
from rowpost.spark.jobs.archive import BatchWriter, archive, read_archive
from rowpost.spark.jobs.retain import Retention, Rule
from rowpost.wire.message import format_timestamp
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw

DIGITS, UPPER, LOWER = "0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
#: From the alphabet of Python's base 85 to that of ZeroMQ, which Delta's protocol uses.
TO_Z85 = str.maketrans(
    f"{DIGITS}{UPPER}{LOWER}!#$%&()*+-;<=>?@^_`{{|}}~", f"{DIGITS}{LOWER}{UPPER}.-:+=^!/*?&<>()[]{{}}@%$#"
)
FAR = datetime(2999, 1, 1, tzinfo=UTC)


@pytest.fixture
def checkpoint(tmp_path):
    """The checkpoint that Spark writes before the first batch of a query."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "1f0c2a9e-0000-0000-0000-000000000000"}))
    return str(folder)


@pytest.fixture(scope="module")
def one(spark, tmp_path_factory) -> ArchiveMaker:
    """An archive of one message."""
    made = ArchiveMaker(tmp_path_factory.mktemp("one"))
    made.batch(0, [audit_row("m1")])
    return made


@pytest.fixture
def made(one, tmp_path) -> ArchiveMaker:
    """A copy of that archive for one test."""
    return one.copy(tmp_path / "made")


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


@pytest.mark.spark_promise
def test_a_batch_that_is_written_twice_is_there_once_and_verbatim(spark, tmp_path, checkpoint):
    rows = [audit_row(f"m{n}", sent=NOON + timedelta(days=n % 3), body=bytes([n])) for n in range(30)]
    batch = archive(messages(spark, *rows), "Shop.audit@[odd/schema]")
    write = BatchWriter(str(tmp_path / "out"), checkpoint)

    for number in (0, 1, 1):
        write(batch.where(f"row_version % 2 = {number}"), number)

    kept = read_archive(spark, str(tmp_path / "out")).collect()
    assert sorted((row.id, row.headers, bytes(row.body), row.row_version) for row in kept) == sorted(
        (r[0], r[5], r[6], r[7]) for r in rows
    )
    assert {row.queue for row in kept} == {"Shop.audit@[odd/schema]"}


def test_another_query_with_the_same_numbers_replaces_nothing(spark, tmp_path, checkpoint):
    batch = archive(messages(spark, audit_row()), "audit")
    BatchWriter(str(tmp_path / "out"), checkpoint)(batch, 0)
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "22222222-0000-0000-0000-000000000000"}))
    BatchWriter(str(tmp_path / "out"), checkpoint)(batch, 0)

    assert read_archive(spark, str(tmp_path / "out")).count() == 2


def test_the_table_tells_its_files_and_the_log_the_batch(spark, tmp_path, checkpoint):
    BatchWriter(str(tmp_path / "out"), checkpoint, queue="a=b/c %")(archive(messages(spark, audit_row()), "a=b/c %"), 7)

    table = open_table(str(tmp_path / "out"))
    (file,) = table.files()

    assert (file.queue, file.day, file.rows) == ("a=b/c %", "2024-05-17", 1)
    assert (tmp_path / "out" / file.path).stat().st_size == file.bytes
    assert table.last_batch("1f0c2a9e-0000-0000-0000-000000000000") == 7
    assert table.notes(0) == [{"job": "archive", "queue": "a=b/c %", "batch": 7, "rows": 1}]


def test_the_log_has_ranges_of_times_and_row_versions_and_no_value_of_a_message(spark, tmp_path, checkpoint):
    marker = "Ada-Lovelace-1815"
    personal = {
        "ReplyToAddress": marker,
        "OriginatingMachine": marker,
        "ProcessingMachine": marker,
        "ConversationId": marker,
        "x.Customer": marker,
    }
    BatchWriter(str(tmp_path / "out"), checkpoint)(
        archive(messages(spark, audit_row(marker, body=marker.encode(), **personal)), "audit"), 0
    )

    log = "".join(path.read_text() for path in (tmp_path / "out" / "_delta_log").glob("*.json"))

    assert "numRecords" in log and '\\"row_version\\"' in log and '\\"time_sent\\": \\"2024-05-17T12:00:00' in log
    assert marker not in log


def test_a_table_has_statistics_of_columns_that_it_has(spark, tmp_path):
    """Delta's own writers refuse every change of a table that names another one."""
    tables = {
        name: create_table(str(tmp_path / name), schema.json())
        for name, schema in (("archive", ARCHIVE), ("live", LIVE))
    }

    for name, table in tables.items():
        named = DeltaTable(tmp_path / name).metadata().configuration["delta.dataSkippingStatsColumns"].split(",")
        assert named and set(named) <= set(table.names)
        table.check_plain_log()


def test_duckdb_reads_the_table_with_delta_scan(spark, tmp_path, checkpoint):
    duckdb = pytest.importorskip("duckdb", reason="needs pip install duckdb duckdb-extension-delta")
    extension = pytest.importorskip("duckdb_extension_delta", reason="needs pip install duckdb duckdb-extension-delta")
    write = BatchWriter(str(tmp_path / "out"), checkpoint)
    for number in range(2):
        write(
            archive(
                messages(spark, *(audit_row(f"m{number}{n}", sent=NOON + timedelta(days=n)) for n in range(3))), "audit"
            ),
            number,
        )
    (file,) = Path(extension.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute(f"LOAD '{file}'")

    found = connection.execute(
        "SELECT message_id FROM delta_scan(?) WHERE queue = 'audit' AND time_sent >= TIMESTAMPTZ '2024-05-18 00:00:00Z' ORDER BY 1",
        [str(tmp_path / "out")],
    ).fetchall()

    assert [name for (name,) in found] == ["m01", "m02", "m11", "m12"]


def test_deltas_own_readers_see_the_same_rows(spark, tmp_path, checkpoint):
    rows = [audit_row(f"m{n}", sent=NOON + timedelta(days=n % 2)) for n in range(6)]
    BatchWriter(str(tmp_path / "out"), checkpoint)(archive(messages(spark, *rows), "a=b/c %"), 0)
    table = DeltaTable(str(tmp_path / "out"))

    read = table.to_pyarrow_table(columns=["id", "queue", "day"]).to_pylist()
    queried = pa.table(
        QueryBuilder()
        .register("archive", table)
        .execute("SELECT count(*) AS n FROM archive WHERE time_sent >= '2024-05-18'")
        .read_all()
    )

    assert sorted(row["id"] for row in read) == sorted(row[0] for row in rows)
    assert {(row["queue"], str(row["day"])) for row in read} == {("a=b/c %", "2024-05-17"), ("a=b/c %", "2024-05-18")}
    assert queried.to_pylist() == [{"n": 3}]


def test_a_column_that_another_program_adds_is_read_and_does_not_end_the_archive(spark, made):
    DeltaTable(made.address).alter.add_columns([Field("team", "string")])

    made.batch(1, [audit_row("m2")])

    assert {(row.message_id, row.team) for row in read_archive(spark, made.address).collect()} == {
        ("m1", None),
        ("m2", None),
    }


def test_files_that_another_program_wrote_to_other_folders_have_their_queue_and_day(spark, made):
    table = open_table(made.address)
    (file,) = table.files()
    (made.path / "7f").mkdir()
    (made.path / file.path).rename(made.path / "7f" / "x.parquet")
    assert table.commit(
        [NewFile("7f/x.parquet", file.queue, file.day, file.bytes, file.rows, statistics="{}")],
        [file],
        note={"job": "test"},
    )

    (row,) = read_archive(spark, made.address).where("day = '2024-05-17'").collect()

    assert (row.message_id, row.queue, str(row.day)) == ("m1", "audit", "2024-05-17")


def changed_by_another_program(out, *entries: dict) -> None:
    """Add an entry to the log that deltalake cannot write."""
    (out / "_delta_log" / f"{2:020}.json").write_text("\n".join(map(json.dumps, entries)))


def first_entry(out, version: int, name: str) -> dict:
    """Return an action of an entry of the log."""
    lines = (out / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return next(entry[name] for entry in map(json.loads, lines) if name in entry)


def with_column_mapping(out) -> None:
    metadata = first_entry(out, 0, "metaData")
    schema = json.loads(metadata["schemaString"])
    for number, column in enumerate(schema["fields"], 1):
        column["metadata"] |= {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": column["name"]}
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] |= {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
    }
    changed_by_another_program(
        out, {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}
    )


def with_deletion_vectors(out) -> None:
    add, features = first_entry(out, 1, "add"), ["deletionVectors"]
    # the first row, as a portable roaring bitmap: magic, one bitmap, its key, cookie, containers, key, cardinality - 1, offset, value
    bitmap = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
    encoded = base64.b85encode(bitmap + b"\0" * (-len(bitmap) % 4)).decode().translate(TO_Z85)
    add["deletionVector"] = {
        "storageType": "i",
        "pathOrInlineDv": encoded,
        "sizeInBytes": len(bitmap),
        "cardinality": 1,
    }
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    changed_by_another_program(out, {"protocol": protocol}, {"add": add})


@pytest.mark.parametrize(
    ("change", "named"), [(with_column_mapping, "column mapping"), (with_deletion_vectors, "deletion vectors")]
)
def test_a_table_that_needs_deltas_jar_is_refused_in_one_sentence(spark, made, tmp_path, change, named):
    change(made.path)

    with pytest.raises(SparkFailed, match=f"{named}.*Delta's jar"):
        read_archive(spark, made.address)
    for change_it in (
        lambda: made.batch(1, [audit_row("m2")]),
        lambda: retain.run(spark, made.address, Retention((Rule("delete", "audit", "*"),)), NOON),
        lambda: erase.run(spark, made.address, erase.Erasure(where="true"), reason="a test", now=NOON),
    ):
        with pytest.raises(SparkFailed, match=f"{named}.*does not write"):
            change_it()
    with pytest.raises(SparkFailed, match=f"Cannot decode.*{named}"):
        decode.run(spark, made.address, str(tmp_path / "decoded"), {})


def with_row_tracking(out) -> None:
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking", "domainMetadata"]}
    changed_by_another_program(out, {"protocol": features})


def with_a_constraint(out) -> None:
    metadata = first_entry(out, 0, "metaData")
    metadata["configuration"] |= {"delta.constraints.small": "body_bytes < 1"}
    changed_by_another_program(
        out, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}, {"metaData": metadata}
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("change", "named"), [(with_row_tracking, "RowTracking"), (with_a_constraint, "constraint small")]
)
def test_a_table_that_rowpost_cannot_write_is_read_and_refuses_a_batch_in_one_sentence(spark, made, change, named):
    """A refused commit is no conflict: it was tried again without end."""
    change(made.path)

    with pytest.raises(SparkFailed, match=f"Cannot change .*{named}"):
        made.batch(1, [audit_row("m2")])
    assert [row.message_id for row in read_archive(spark, made.address).collect()] == ["m1"]


def test_a_table_of_another_program_is_not_an_archive(tmp_path):
    write_deltalake(str(tmp_path), pa.table({"n": [1]}))

    with pytest.raises(SparkFailed, match="partitioned by nothing"):
        open_table(str(tmp_path))


def test_an_archive_that_is_not_there_is_not_found(spark, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with pytest.raises(ArchiveNotFound, match=name):
            read_archive(spark, str(tmp_path / name))


def test_a_file_that_was_not_written_to_its_end_is_named(spark, made):
    (path,) = made.path.rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:100])

    with pytest.raises(SparkFailed, match=path.name), explained():
        read_archive(spark, made.address).collect()
