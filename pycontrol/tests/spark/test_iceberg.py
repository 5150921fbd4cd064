"""An archive that is an Iceberg table: what its metadata says, what other programs may have done to it, and how its snapshots expire."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as T
from typer.testing import CliRunner

from rowpost.cli.app import app
from rowpost.errors import ArchiveNotFound, SettingsError, SparkFailed, SparkUnavailable
from rowpost.spark.archive import iceberg, iceberg_expiry
from rowpost.spark.archive.folder import ArchiveFolder
from rowpost.spark.archive.iceberg_catalog import load
from rowpost.spark.archive.iceberg_files import relative
from rowpost.spark.archive.iceberg_schema import iceberg_schema, spark_schema
from rowpost.spark.archive.opening import create_table, open_table
from rowpost.spark.archive.parts import STATISTICS, NewFile
from rowpost.spark.archive.schemas import ARCHIVE, LIVE
from rowpost.spark.archive.searching import contains
from rowpost.spark.bodies.expectations import read_expectations
from rowpost.spark.bodies.schema_files import read_schemas
from rowpost.spark.doctor import check_catalogue
from rowpost.spark.jobs import adopt, compact, decoded_tables, erase, quality, verify
from rowpost.spark.jobs.archive import ArchiveJob, follow, read_archive
from rowpost.spark.jobs.metrics import start_live
from tests.support.spark.archives import QUERY, ArchiveMaker
from tests.support.spark.killing import ROWPOST, python_of
from tests.support.spark.messages import NOON, audit_row

MARKER = "Ada-Lovelace-1815"
PERSONAL = dict.fromkeys(("ReplyToAddress", "OriginatingMachine", "ProcessingMachine", "ConversationId", "x.Customer"), MARKER)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PYCONTROL = Path(__file__).parents[2]
SETTINGS, UNAVAILABLE, NOT_FOUND = 3, 4, 6


@pytest.fixture
def table_format(lake) -> str:
    return "iceberg"


@pytest.fixture
def made(spark, tmp_path, lake) -> ArchiveMaker:
    """An archive of three batches over two days, with a message of a person in the first."""
    made = ArchiveMaker(spark, tmp_path / "made", table_format="iceberg")
    for number in range(3):
        rows = [audit_row(f"m{number}{n}", sent=NOON + timedelta(days=n % 2)) for n in range(4)]
        made.batch(number, [audit_row(MARKER, body=MARKER.encode(), **PERSONAL), *rows] if number == 0 else rows)
    return made


def own(made: ArchiveMaker) -> Table:
    """Load the table as another program does."""
    catalog, name = load(made.address)
    return catalog.load_table(name)


def metadata_files(made: ArchiveMaker) -> list[str]:
    return sorted(name for name, info in ArchiveFolder(str(made.path / "metadata")).contents() if info.is_file)


def holding(made: ArchiveMaker, text: str = MARKER) -> list[str]:
    return [name for name, info in ArchiveFolder(str(made.path)).contents() if info.is_file and contains(str(made.path), name, text)]


# ---------------------------------------------------------------------------------------------- what the metadata says
def test_pyiceberg_reads_the_same_rows(spark, made):
    whole = own(made).scan().to_arrow().to_pylist()
    of_day = own(made).scan("day = '2024-05-18' and row_version >= 0", selected_fields=("message_id", "queue", "day")).to_arrow().to_pylist()

    expected = {
        (row.id, row.headers, bytes(row.body), row.row_version, row.queue, str(row.day), row.time_sent)
        for row in read_archive(spark, made.address).collect()
    }
    assert len(whole) == 13
    assert {
        (row["id"], row["headers"], row["body"], row["row_version"], row["queue"], str(row["day"]), row["time_sent"].replace(tzinfo=None))
        for row in whole
    } == expected
    assert {(row["queue"], str(row["day"])) for row in of_day} == {("audit", "2024-05-18")} and len(of_day) == 6


def test_the_metadata_has_ranges_of_times_and_row_versions_and_no_value_of_a_message(made):
    table = own(made)
    known = {table.schema().find_field(name).field_id for name in STATISTICS if name in table.schema().column_names}
    entries = [entry.data_file for manifest in table.current_snapshot().manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]

    assert len(entries) == 6 and sum(entry.record_count for entry in entries) == 13
    for entry in entries:
        assert set(entry.lower_bounds) | set(entry.upper_bounds) | set(entry.value_counts) | set(entry.null_value_counts) <= known
        sent = table.schema().find_field("time_sent")
        assert NOON.timestamp() * 1e6 <= from_bytes(sent.field_type, entry.lower_bounds[sent.field_id]) < (NOON + timedelta(days=2)).timestamp() * 1e6
    assert not [name for name in holding(made) if name.startswith("metadata/")]


def test_the_table_tells_its_files_and_the_log_the_batch(spark, tmp_path, table_format):
    made = ArchiveMaker(spark, tmp_path / "made", table_format=table_format)
    made.batch(7, [audit_row()], "a=b/c %")

    table = open_table(made.address)
    (file,) = table.files()

    assert (file.queue, file.day, file.rows, file.shape) == ("a=b/c %", "2024-05-17", 1, ("queue", "day"))
    assert (made.path / file.path).stat().st_size == file.bytes
    assert (table.last_batch(QUERY), table.last_batch("other"), table.version) == (7, -1, 1)
    assert table.notes(0) == [{"job": "archive", "queue": "a=b/c %", "batch": 7, "rows": 1}]
    assert [row.queue for row in read_archive(spark, made.address).collect()] == ["a=b/c %"]


def test_columns_get_the_numbers_that_a_catalogue_assigns_and_come_back():
    nested = T.StructType([
        T.StructField("a", T.StructType([T.StructField("x", T.LongType()), T.StructField("y", T.ArrayType(T.StringType()))])),
        T.StructField("b", T.MapType(T.StringType(), T.StructType([T.StructField("z", T.DecimalType(10, 2))]))),
        T.StructField("c", T.ArrayType(T.StructType([T.StructField("w", T.TimestampNTZType())]))),
    ])  # fmt: skip

    for columns in (ARCHIVE, LIVE, nested):
        schema = iceberg_schema(columns)
        assert assign_fresh_schema_ids(schema) == schema
        assert [(c.name, c.dataType) for c in spark_schema(schema, "t")] == [(c.name, c.dataType) for c in columns]


# ---------------------------------------------------------------------------------------------- commits
def test_a_batch_that_another_process_repeats_is_there_once(spark, made):
    """The other process has read the table before the batch was committed, as a driver that was taken for dead has."""
    other = open_table(made.address)
    made.batch(3, [audit_row("m3")])
    (path,) = {file.path for file in open_table(made.address).files()} - {file.path for file in other.files()}
    repeated = {"note": {"job": "archive"}, "batches": {QUERY: 3}}

    new = NewFile(path, "audit", "2024-05-17", 1, 1, "{}")
    assert other.commit([new], **repeated) is False
    other.refresh()
    assert other.last_batch(QUERY) == 3

    made.batch(3, [audit_row("m3")])
    assert read_archive(spark, made.address).where("message_id = 'm3'").count() == 1


def test_pyicebergs_own_transaction_is_not_relied_on(made):
    """It rebases a commit on the newest snapshot, so that a repeated batch is added twice. If this fails, `commit` can use it."""
    first, second = own(made), own(made)
    new = first.current_snapshot().manifests(first.io)[0].fetch_manifest_entry(first.io)[0].data_file
    for table in (first, second):
        with table.transaction() as change:
            with change.update_snapshot().merge_append() as append:
                append.append_data_file(new)
            change.set_properties({"rowpost.batch.q": "0"})

    assert len(open_table(made.address).files()) == 6 + 2


COMMITTER = """
import sys
from rowpost.spark.archive.opening import open_table
from rowpost.spark.archive.parts import NewFile

table = open_table(sys.argv[1])
files = table.files()
print("read", flush=True)
sys.stdin.readline()
print(table.commit(remove=files[:1], note={"job": "test"}), flush=True)
"""


@pytest.mark.parametrize("catalogue", ["sqlite", "postgresql"])
def test_of_processes_that_commit_on_one_snapshot_at_once_one_wins(spark, spark_url, tmp_path, lake, monkeypatch, catalogue):
    if catalogue == "postgresql":
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", spark_url.replace("postgresql://", "postgresql+psycopg://"))
    made = ArchiveMaker(spark, tmp_path / f"made_{catalogue}_{os.getpid()}", table_format="iceberg")
    made.batch(0, [audit_row(f"m{n}", sent=NOON + timedelta(days=n)) for n in range(5)])
    environment = {**os.environ, "PYTHONPATH": str(PYCONTROL)}
    for _ in range(3):
        before = open_table(made.address)
        started = [
            subprocess.Popen([sys.executable, "-c", COMMITTER, made.address], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]  # fmt: skip
        for process in started:
            assert process.stdout.readline() == "read\n"
        for process in started:
            process.stdin.write("\n")
            process.stdin.flush()
        answers = sorted(process.communicate()[0].strip() for process in started)

        assert answers == ["False", "False", "False", "True"]
        after = open_table(made.address)
        assert (after.version, len(after.files())) == (before.version + 1, len(before.files()) - 1)


def test_a_commit_whose_answer_is_lost_is_recognised(made, monkeypatch):
    table = open_table(made.address)
    files = table.files()
    catalog = type(table._table.catalog)
    original = catalog.commit_table

    def lost(self, *arguments):
        original(self, *arguments)
        raise ConnectionError("the connection was reset")

    monkeypatch.setattr(catalog, "commit_table", lost)
    assert table.commit(remove=files[:1], note={"job": "test"}) is True
    monkeypatch.setattr(catalog, "commit_table", original)
    assert not table.are_live(files[:1]) and len(open_table(made.address).files()) == len(files) - 1


def test_a_catalogue_that_fails_changes_nothing(made, monkeypatch):
    table = open_table(made.address)
    monkeypatch.setattr(
        type(table._table.catalog), "commit_table", lambda *arguments: (_ for _ in ()).throw(ConnectionError("the connection was reset"))
    )

    with pytest.raises(SparkFailed, match=r"connection was reset.*Check the catalogue"):
        table.commit(remove=table.files()[:1], note={"job": "test"})
    assert len(open_table(made.address).files()) == 6


def test_a_writer_whose_snapshot_another_job_has_expired_looks_again(made):
    stale, other = open_table(made.address), open_table(made.address)
    assert other.commit(remove=other.files()[:1], note={"job": "test"})
    other.vacuum(at_once=True)

    assert stale.commit(remove=stale.files()[1:2], note={"job": "test"}) is False
    stale.refresh()
    assert stale.files() == other.files()


# ---------------------------------------------------------------------------------------------- snapshots that expire
def test_a_replaced_file_stays_for_a_day_after_it_was_replaced(spark, made):
    compact.run(spark, made.address, datetime.now(UTC))
    table = open_table(made.address)
    replaced, version = table.replaced(), table.version
    assert len(replaced) == 6 and table.paths_at(version - 1) == set(replaced)

    soon, later = datetime.now(UTC) + timedelta(hours=23), datetime.now(UTC) + timedelta(hours=25)
    plans = [iceberg_expiry.plan(table._table, table._manifests, at_once=False, now=now) for now in (soon, later)]

    assert [len(plan.snapshots) for plan in plans] == [0, version - 1]
    assert {relative(table.path, location) for location in plans[1].data} == set(replaced)
    assert table.vacuum() == [] and all((made.path / path).exists() for path in replaced)


def test_vacuum_at_once_leaves_the_newest_snapshot_and_nothing_of_the_others(spark, made):
    compact.run(spark, made.address, datetime.now(UTC))
    table = open_table(made.address)
    replaced = table.replaced()

    assert table.vacuum(at_once=True) == replaced

    assert (table.paths_at(1), len(table.files())) == (None, 2)
    assert not [path for path in replaced if (made.path / path).exists()]
    metadata = own(made)
    (snapshot,) = metadata.snapshots()
    named = {metadata.metadata_location, snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(metadata.io))}
    assert metadata_files(made) == sorted(Path(each).name for each in named)
    assert read_archive(spark, made.address).count() == 13 == own(made).scan().to_arrow().num_rows
    made.batch(3, [audit_row("m3")])
    assert read_archive(spark, made.address).count() == 14 and open_table(made.address).last_batch(QUERY) == 3


@pytest.mark.parametrize("killed_in", ["commit", "delete"])
def test_a_vacuum_that_was_killed_is_finished_by_the_next(spark, made, monkeypatch, killed_in):
    compact.run(spark, made.address, datetime.now(UTC))
    table = open_table(made.address)
    replaced = table.replaced()

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(iceberg_expiry.Expiry, "commit", killed) if killed_in == "commit" else patched.setattr(iceberg_expiry, "delete", killed)
        table.vacuum(at_once=True)

    open_table(made.address).vacuum(at_once=True)
    assert not [path for path in replaced if (made.path / path).exists()]
    assert verify.run(spark, made.address).notes == [] and read_archive(spark, made.address).count() == 13


def test_files_that_a_killed_commit_left_in_the_metadata_are_deleted_after_two_days(made):
    young, old = (made.path / "metadata" / name for name in ("young-m0.avro", "old-m0.avro"))
    for path in (young, old):
        path.write_bytes(b"x")
    before = datetime.now(UTC).timestamp() - 49 * 3600
    os.utime(old, (before, before))
    for path in (made.path / "metadata").glob("*-m0.avro"):  # those of the snapshots are named
        if path != young:
            os.utime(path, (before, before))

    table = open_table(made.address)
    table.vacuum()

    assert young.exists() and not old.exists()
    assert len(table.files()) == 6 and own(made).scan().to_arrow().num_rows == 13


def test_many_batches_keep_few_manifests_and_metadata_files(spark, tmp_path, table_format):
    """Each batch adds a manifest, and each change a file of metadata."""
    made = ArchiveMaker(spark, tmp_path / "made", table_format=table_format)
    table = create_table(made.address, ARCHIVE)
    (made.path / "queue=a").mkdir(parents=True)
    for number in range(130):
        (made.path / "queue=a" / f"{number}.parquet").touch()
        assert table.commit([NewFile(f"queue=a/{number}.parquet", "a", "2024-05-17", 1, 1, "{}")], batches={"q": number}, note={"job": "test"})

    found = own(made)
    assert len(found.current_snapshot().manifests(found.io)) <= 100
    assert len([name for name in metadata_files(made) if name.endswith(".json")]) <= 12
    assert len(table.files()) == 130 and open_table(made.address).last_batch("q") == 129


# ---------------------------------------------------------------------------------------------- erase
def test_erase_goes_on_beside_a_tag_only_when_it_is_dropped(spark, made):
    table = own(made)
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "audit-2026").commit()
    selection = erase.Selection(ids=(MARKER,))

    with pytest.raises(SparkFailed, match=r"kept by audit-2026.*run the command again"):
        erase.run(spark, made.address, selection, "request 17", NOW)
    assert holding(made)

    own(made).manage_snapshots().remove_tag("audit-2026").commit()
    erase.run(spark, made.address, selection, "request 17", NOW)
    assert holding(made) == [] and read_archive(spark, made.address).count() == 12


def test_statistics_that_another_program_wrote_are_refused_before_anything_is_erased(spark, made):
    table = own(made)
    with table.transaction() as change:
        change.set_properties({"write.metadata.metrics.default": "full"})
    rows = table.scan("message_id = 'm00'").to_arrow()
    table.append(rows)

    with pytest.raises(SparkFailed, match=r"statistics of other columns.*rewrite"):
        erase.run(spark, made.address, erase.Selection(ids=(MARKER,)), "request 17", NOW)


# ---------------------------------------------------------------------------------------------- other programs
def test_rows_of_another_program_are_read_merged_and_erased(spark, made):
    """pyiceberg stores the columns of the partition in its files, in folders of its own."""
    table = own(made)
    rows = table.scan("message_id = 'm00' or message_id = 'm11'").to_arrow()
    table.append(rows)

    read = read_archive(spark, made.address).where("message_id in ('m00', 'm11')").select("message_id", "queue", "day")
    assert sorted((row.message_id, row.queue, str(row.day)) for row in read.collect()) == sorted(
        2 * [("m00", "audit", "2024-05-17"), ("m11", "audit", "2024-05-18")]
    )
    assert verify.repair(spark, made.address)["copies_removed"] == 2
    compact.run(spark, made.address, datetime.now(UTC))
    assert read_archive(spark, made.address).count() == 13 == own(made).scan().to_arrow().num_rows
    assert verify.run(spark, made.address).findings == []


def test_a_column_that_another_program_adds_is_read_and_does_not_end_the_archive(spark, made):
    with own(made).update_schema() as change:
        change.add_column("team", StringType())

    made.batch(3, [audit_row("m3")])

    assert {row.team for row in read_archive(spark, made.address).collect()} == {None}
    assert own(made).scan().to_arrow().num_rows == 14


def rename(made: ArchiveMaker) -> None:
    with own(made).update_schema() as change:
        change.rename_column("machine", "computer")


def without_mapping(made: ArchiveMaker) -> None:
    with own(made).transaction() as change:
        change.remove_properties("schema.name-mapping.default")


def elsewhere(made: ArchiveMaker) -> None:
    table = own(made)
    with table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{made.folder}/elsewhere"})
    table.append(table.scan("message_id = 'm00'").to_arrow())


@pytest.mark.parametrize(("change", "named"), [(rename, "renamed columns"), (without_mapping, "name-mapping"), (elsewhere, "outside of its folder")])
def test_what_rowpost_does_not_write_is_refused_in_one_sentence(spark, made, change, named):
    change(made)

    with pytest.raises(SparkFailed, match=f"Cannot change iceberg:lake.made.out.*{named}"):
        made.batch(3, [audit_row("m3")])
    with pytest.raises(SparkFailed, match=named):
        compact.run(spark, made.address, datetime.now(UTC))


def test_another_version_of_the_format_is_not_written(lake, monkeypatch):
    monkeypatch.setitem(iceberg._PROPERTIES, "format-version", "1")

    with pytest.raises(SparkFailed, match=r"version 1 of the format, and rowpost writes version 2"):
        create_table("iceberg:lake.messages.archive", ARCHIVE).check_writable()


@pytest.mark.parametrize("change", [rename, elsewhere])
def test_what_only_icebergs_readers_understand_is_not_read(spark, made, change):
    change(made)

    with pytest.raises(SparkFailed, match=r"Cannot read iceberg:lake.made.out.*rewrite_data_files"):
        read_archive(spark, made.address)


def test_a_table_of_another_program_is_not_an_archive(lake):
    catalog, _ = load("iceberg:lake.other.t")
    catalog.create_namespace("other")
    catalog.create_table("other.t", Schema(NestedField(1, "n", LongType())))

    with pytest.raises(SparkFailed, match=r"iceberg:lake.other.t is not an archive: it is partitioned by nothing"):
        open_table("iceberg:lake.other.t")


# ---------------------------------------------------------------------------------------------- addresses and catalogues
@pytest.mark.parametrize("address", ["iceberg:", "iceberg:lake", "iceberg:lake.archive", "iceberg:lake..archive"])
def test_an_address_that_is_not_complete_is_refused(address):
    with pytest.raises(SettingsError, match=r"iceberg:CATALOG\.NAMESPACE\.TABLE"):
        open_table(address)


def test_a_catalogue_that_is_not_configured_is_named(lake):
    with pytest.raises(SettingsError, match=r"no catalogue pond.*PYICEBERG_CATALOG__POND__URI"):
        open_table("iceberg:pond.messages.archive")


@pytest.mark.parametrize(
    ("uri", "raised", "says"),
    [
        ("sqlite:////no/such/folder/c.db", SparkFailed, "unable to open database file"),
        ("http://127.0.0.1:9", SparkFailed, "refused|Max retries"),
        ("postgresql+psycopg://nobody:marker-secret@127.0.0.1:9/x", SparkFailed, "refused"),
        ("thrift://127.0.0.1:9", SparkUnavailable, "package that is not installed"),
        ("ftp://x", SparkFailed, "ftp"),
    ],
)  # fmt: skip
def test_a_catalogue_that_cannot_be_used_is_an_error_of_rowpost(lake, monkeypatch, uri, raised, says):
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)

    with pytest.raises(raised, match=says) as refused:
        open_table("iceberg:lake.messages.archive")
    assert "iceberg:lake.messages.archive" in str(refused.value) and "marker-secret" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_table_that_is_not_there_is_not_found(spark, lake):
    with pytest.raises(ArchiveNotFound, match=r"spark archive QUEUE iceberg:lake.messages.archive"):
        open_table("iceberg:lake.messages.archive")
    create_table("iceberg:lake.messages.archive", ARCHIVE)
    with pytest.raises(ArchiveNotFound):
        read_archive(spark, "iceberg:lake.messages.other")


def test_metadata_that_is_gone_is_named(made):
    Path(own(made).metadata_location.removeprefix("file://")).unlink()

    with pytest.raises(SparkFailed, match=r"metadata of the table iceberg:lake.made.out cannot be read.*Restore it"):
        open_table(made.address)


def test_a_table_that_two_processes_create_at_once_is_one(lake):
    first, second = (create_table("iceberg:lake.messages.archive", ARCHIVE) for _ in range(2))

    assert first.path == second.path and first.version == 0 and first.files() == [] and first.paths_at(0) == set()
    first.vacuum(at_once=True)


def test_checkpoints_are_below_the_tables_folder(made):
    assert ArchiveJob("audit", made.address).checkpoint_location == f"{made.path}/_rowpost/checkpoints/audit-tail"
    assert ArchiveJob("audit", made.address, checkpoint="c").checkpoint_location == "c"


def test_decode_and_adopt_take_folders_only(spark, made):
    with pytest.raises(SettingsError, match="tables of decode must be in a folder"):
        decoded_tables.run(spark, made.address, "iceberg:lake.decoded.tables", {})
    with pytest.raises(SettingsError, match="must be in a folder"):
        adopt.run(made.address)


def test_the_doctor_says_where_the_table_is(spark, made, monkeypatch):
    assert [(check.state, str(made.path) in check.found) for check in check_catalogue(spark, made.address)] == [("ok", True)]
    assert [check.state for check in check_catalogue(spark, "iceberg:lake.messages.none")] == ["ok"]
    assert [check.state for check in check_catalogue(spark, "iceberg:pond.messages.none")] == ["bad"]


# ---------------------------------------------------------------------------------------------- tables that jobs write
def test_failing_messages_are_set_apart_in_a_table_of_the_catalogue_and_erased_with_the_archive(spark, made, tmp_path):
    rules = tmp_path / "expect.yml"
    rules.write_text("rules:\n  - {name: failed, not_null: [failed_queue]}\n")
    expectations, apart = read_expectations(rules), "iceberg:lake.made.apart"

    def run() -> int:
        return quality.run(spark, made.address, expectations, {}, today=NOW.date(), apart=apart)[1]["apart"]

    added = run()
    assert added > 0 and run() == 0
    assert read_archive(spark, apart).count() == added

    made.batch(3, [audit_row(f"{MARKER}-2", x=MARKER, ReplyToAddress=None)])
    run()
    receipt = erase.run(spark, made.address, erase.Selection(where=f"message_id like '{MARKER}%'"), "request 17", NOW)

    assert (receipt["erased"], receipt["copies_erased"] >= 1, receipt["copies_missing"]) == (2, True, [])
    assert holding(made) == [] and read_archive(spark, apart).where(f"message_id like '{MARKER}%'").count() == 0


def test_an_archive_of_the_catalogue_is_decoded_to_a_folder_of_tables(spark, made, tmp_path):
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "Shop.PlaceOrder.ddl").write_text("OrderId BIGINT")
    schemas, out = read_schemas(tmp_path / "schemas"), str(tmp_path / "decoded")

    first = decoded_tables.run(spark, made.address, out, schemas)
    made.batch(3, [audit_row("m3", body=b'{"OrderId": 7}')])
    compact.run(spark, made.address, datetime.now(UTC))
    second = decoded_tables.run(spark, made.address, out, schemas)

    assert ([each.added for each in first["tables"]], [each.added for each in second["tables"]]) == ([13], [1])
    assert erase.run(spark, made.address, erase.Selection(ids=(MARKER,)), "request 17", NOW)["copies_erased"] == 1


def test_the_hours_of_a_stream_are_written_to_a_table_of_the_catalogue(spark, queues, lake):
    queue, out = queues.make(), "iceberg:lake.metrics.hours"
    checkpoint = f"{create_table(out, T.StructType([column for column in LIVE if not column.name.endswith('_sketch')])).path}/_rowpost/checkpoint"

    for hour in (0, 1, 3):
        queues.send(queue, [b"1"], audit_row(sent=NOON + timedelta(hours=hour), waited=0, took=0)[5])
        follow(start_live(spark, queue, out, checkpoint, environment=queues.environment))

    rows = read_archive(spark, out).collect()
    assert sorted((row.hour.hour, row.messages) for row in rows) == [(12, 1), (13, 1)]
    assert set(LIVE.fieldNames()) == set(rows[0].asDict())


# ---------------------------------------------------------------------------------------------- commands
def test_the_commands_work_on_a_table_of_the_catalogue(spark, queues, lake, tmp_path, monkeypatch):
    queue, target, out = queues.make(), queues.make(), "iceberg:lake.messages.archive"
    queues.send(queue, [b"%d" % n for n in range(50)], audit_row()[5])
    monkeypatch.chdir(tmp_path)

    def rowpost(*arguments: str):
        return CliRunner().invoke(app, ["--env", queues.environment, "spark", *arguments, "--json"])

    missing = rowpost("compact", out)
    assert missing.exit_code == NOT_FOUND and out in missing.stderr
    for arguments in (
        ("archive", queue, out, "--max-rows", "20"),
        ("archive", queue, out),
        ("compact", out),
        ("replay", out, target, "--job", "again", "--where", "row_version < 1000000"),
        ("erase", out, "--where", "row_version = 7", "--reason", "request 1"),
        ("verify", out),
    ):
        ended = rowpost(*arguments)
        assert ended.exit_code == 0, (arguments, ended.stderr)
    counts = json.loads(ended.stdout.strip().splitlines()[-1])
    assert (counts["messages"], counts["findings"], queues.depth(target)) == (49, 0, 50)
    refused = rowpost("metrics", out, "--out", "iceberg:lake.messages.metrics")
    assert refused.exit_code == SETTINGS and "must be in a folder" in refused.stderr
    assert not list(tmp_path.glob("iceberg:*"))


def test_without_the_package_the_command_says_what_to_install(tmp_path):
    hide = "import sys; sys.modules['pyiceberg'] = None; "
    ended = subprocess.run(
        [sys.executable, "-c", hide + ROWPOST, "spark", "compact", "iceberg:lake.messages.archive"],
        env=python_of(PYCONTROL), capture_output=True, text=True, cwd=tmp_path, timeout=100,
    )  # fmt: skip

    assert ended.returncode == UNAVAILABLE and "[iceberg]" in ended.stderr and "Traceback" not in ended.stderr
