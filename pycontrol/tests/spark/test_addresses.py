"""How the address of an archive is read: as it is written, by every library, or not at all."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from rowpost.archive.address import local_path, located
from rowpost.archive.folder import LOG_FOLDER, ArchiveFolder
from rowpost.archive.leftovers import find_leftovers
from rowpost.archive.parts import write_parts
from rowpost.archive.table import ArchiveTable, create_table, open_table
from rowpost.cli.exits import ExitCode
from rowpost.errors import ArchiveNotFound, SettingsError, SparkFailed
from rowpost.spark.archive.rows import read_files, relative
from rowpost.spark.archive.schemas import ARCHIVE
from rowpost.spark.jobs.archive import ArchiveJob
from tests.support.program import Program
from tests.support.spark.object_store import BUCKET, ObjectStore, object_store

QUERY = "11111111-0000-0000-0000-000000000000"
LITERAL = ["a b", "ä#x", "100%", "%zz", "x:y", "a+b&c=d;e", "~a'b\"", "é", " blank "]
AMBIGUOUS = [
    "alone%20here",
    "a%20b",
    "50%25 ä#x",
    "c%2fd",
    "a\\b",
    "a[b]",
    "c?d",
    "e*",
    "{x}",
    "tab\tname",
    "line\nname",
]


@pytest.fixture(scope="module")
def store():
    with object_store() as found:
        yield found


@pytest.fixture
def variables(store: ObjectStore, monkeypatch):
    for name, value in store.variables.items():
        monkeypatch.setenv(name, value)


def batch_of(table: ArchiveTable, number: int, rows: int = 3):
    """Write and commit a batch of a stream, as a job does."""
    schema = table.arrow_schema
    rows_of = {"row_version": list(range(rows)), "queue": ["a%20b ä"] * rows, "day": [date(2024, 5, 17)] * rows}
    new = list(write_parts([pa.RecordBatch.from_pydict(rows_of)], table.folder.path, schema, f"{QUERY}-{number}"))
    assert table.commit(new, batches={QUERY: number}, note={"job": "archive"})


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", LITERAL)
def test_an_archive_is_in_the_folder_whose_name_was_written(tmp_path, name):
    table = create_table(str(tmp_path / name))

    batch_of(table, 0)

    again = open_table(str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [(file.queue, file.rows, again.folder.exists(file.path)) for file in again.files()] == [("a%20b ä", 3, True)]
    assert find_leftovers(again) == [] and again.last_batch(QUERY) == 0


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_name_that_libraries_read_differently_is_refused_before_anything_is_written(tmp_path, name):
    for refused in (create_table, lambda address, _: open_table(address)):
        with pytest.raises(SettingsError, match=r"Rename the folder|Name another"):
            refused(str(tmp_path / name), ARCHIVE)

    assert below(tmp_path) == []


def test_a_folder_above_the_archive_counts_too_and_a_link_is_followed(tmp_path):
    (tmp_path / "a%20b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a%20b")
    create_table(str(tmp_path / "a b" / "archive"))
    before = below(tmp_path)

    for place in ("a%20b", "link"):
        with pytest.raises(SettingsError, match="%20"):
            create_table(str(tmp_path / place / "archive"))

    assert below(tmp_path) == before


def test_a_drain_into_a_name_that_means_another_archive_is_refused_and_touches_neither(tmp_path):
    other = create_table(str(tmp_path / "c d"))
    batch_of(other, 0)
    before = below(tmp_path)

    with pytest.raises(SettingsError, match="c%20d"):
        create_table(str(tmp_path / "c%20d"))
    with pytest.raises(SettingsError, match="c%20d"):
        open_table(str(tmp_path / "c%20d"))

    assert below(tmp_path) == before


def test_the_command_refuses_a_drain_into_such_a_name_before_it_connects(tmp_path):
    environment = tmp_path / "none.yml"
    environment.write_text('engine: postgresql\nurl: "postgresql://app@127.0.0.1:1/shop"\nqueues: {audit: {}}\n')

    for arguments in (("archive", "audit", "c%20d", "--drain"), ("verify", "c%20d", "--sweep")):
        ended = Program(environment, tmp_path)("spark", *arguments)

        assert ended.code == ExitCode.SETTINGS and "c%20d" in ended.err, ended.err


def test_nothing_is_a_leftover_of_a_folder_whose_log_is_in_another_one(tmp_path):
    one, other = (create_table(str(tmp_path / name)) for name in ("one", "other"))
    batch_of(one, 0)
    for number in range(2):
        batch_of(other, number)

    mixed = ArchiveTable(str(tmp_path / "one"), other._table)
    with pytest.raises(SparkFailed, match=f"{tmp_path / 'one'}.*nothing was deleted"):
        find_leftovers(mixed)
    batch_of(one, 1)
    with pytest.raises(SparkFailed, match=f"{tmp_path / 'one'}.*nothing was deleted"):
        find_leftovers(mixed)  # both logs have an entry of this number now

    assert find_leftovers(open_table(str(tmp_path / "one"))) == []


def test_the_forms_of_an_address_name_one_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    batch_of(create_table("a #b"), 0)

    for address in ("./a #b/", f"file:{tmp_path}/a #b", f"file://{tmp_path}/a #b", str(tmp_path / "x" / ".." / "a #b")):
        assert located(address) == str(tmp_path / "a #b")
        assert len(open_table(address).files()) == 1
    with pytest.raises(SettingsError, match="%20"):  # what Python's Path.as_uri() writes
        open_table((tmp_path / "a #b").as_uri())
    with pytest.raises(ArchiveNotFound):
        open_table("a")
    assert local_path("s3a://lake/a") is None


def test_a_checkpoint_that_spark_would_read_as_a_pattern_is_refused():
    assert ArchiveJob("q", "out", checkpoint="a%20b").checkpoint_location == "a%20b"
    for name in ("a[b]", "c?d", "e*", "{x}", "a\\b"):
        with pytest.raises(SettingsError, match="checkpoint"):
            _ = ArchiveJob("q", "out", checkpoint=name).checkpoint_location


@pytest.mark.parametrize("name", LITERAL)
def test_spark_reads_what_was_written_and_names_its_files_alike(spark, tmp_path, name):
    table = create_table(str(tmp_path / name))
    batch_of(table, 0)

    rows = (
        read_files(spark, open_table(str(tmp_path / name)), table.files(), with_file=True)
        .select("queue", "_file")
        .collect()
    )

    assert [(row.queue, relative(table, row["_file"])) for row in rows] == [("a%20b ä", table.files()[0].path)] * 3


# ---------------------------------------------------------------------------------------------- object stores
@pytest.mark.parametrize("name", [*LITERAL, "a\u2603"])
def test_the_key_of_an_object_store_is_what_was_written(store, variables, name):
    address = f"s3a://{BUCKET}/keys/{name}"
    table = create_table(address)

    batch_of(table, 0)

    again = open_table(address)
    own = [key for key in store.stored() if key.startswith(f"keys/{name}/")]
    assert f"keys/{name}/{LOG_FOLDER}/00000000000000000001.json" in own
    assert [f"keys/{name}/{file.path}" in own for file in again.files()] == [True]
    assert find_leftovers(again) == []
    assert {path for path, _ in ArchiveFolder(address).contents() if path.endswith(".parquet")} == {
        file.path for file in again.files()
    }


@pytest.mark.parametrize("name", [*AMBIGUOUS, "a//b", "a/../b", "a/./b"])
def test_a_key_that_libraries_read_differently_is_refused(store, variables, name):
    before = store.stored()

    for address in (
        f"s3a://{BUCKET}/{name}",
        f"abfss://c@account.dfs.core.windows.net/{name}",
        f"gs://{BUCKET}/{name}",
    ):
        with pytest.raises(SettingsError):
            create_table(address)

    assert store.stored() == before


def test_a_bucket_itself_can_be_an_archive(store, variables):
    table = create_table(f"s3a://{BUCKET}")

    batch_of(table, 0)

    again = open_table(f"s3a://{BUCKET}/")
    assert again.files()[0].path in store.stored()
    assert find_leftovers(again) == []
