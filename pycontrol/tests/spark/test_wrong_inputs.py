"""Wrong folders, options and settings end in one sentence of rowpost, and change nothing."""

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rowpost.archive.table import open_table
from rowpost.cli.app import app
from tests.support.spark.archives import ArchiveMaker
from tests.support.spark.messages import audit_row

OK, USAGE, SETTINGS, UNAVAILABLE, NOT_FOUND, FAILED = 0, 2, 3, 4, 6, 7


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    made = ArchiveMaker(tmp_path_factory.mktemp("wrong"))
    made.batch(0, [audit_row("m")])
    return made.path


@pytest.fixture
def out(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


@pytest.fixture
def refused(spark, queues):
    """Run a command that must be refused in one line. Returns its exit code and that line."""

    def call(*arguments: object) -> tuple[int, str]:
        ended = CliRunner().invoke(app, ["--env", queues.environment, "spark", *map(str, arguments)])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        said = [line for line in ended.stderr.splitlines() if line.startswith("rowpost: ")]
        assert (
            "bug in rowpost" not in ended.stderr and "Traceback" not in ended.stderr and "Py4J" not in ended.stderr
        ), ended.stderr
        assert len(said) == 1, ended.stderr
        return ended.exit_code, said[0]

    return call


@pytest.fixture
def other(tmp_path) -> Path:
    """A Delta table of another program, partitioned like an archive."""
    deltalake.write_deltalake(
        str(tmp_path / "other"), pa.table({"queue": ["a"], "day": ["b"], "x": [1]}), partition_by=["queue", "day"]
    )
    return tmp_path / "other"


@pytest.mark.parametrize("name", ["metrics", "verify"])
def test_the_table_of_another_program_is_not_read_as_an_archive(refused, other, name):
    code, said = refused(name, other)

    assert code == FAILED and "is not an archive: it has no column body" in said


def test_nothing_is_archived_into_the_table_of_another_program(refused, queues, other):
    queue = queues.make()
    queues.send(queue, [b"1"])
    before = deltalake.DeltaTable(str(other)).version()

    code, said = refused("archive", queue, other)

    assert code == FAILED and "is not an archive" in said
    assert deltalake.DeltaTable(str(other)).version() == before


def test_parquet_files_without_a_log_are_not_an_archive_and_no_table_is_made_over_them(refused, queues, tmp_path):
    day = tmp_path / "plain" / "queue=audit" / "day=2024-05-17"
    day.mkdir(parents=True)
    (day / "a.parquet").write_bytes(b"PAR1")

    for arguments in (("metrics", day.parents[1]), ("archive", queues.make(), day.parents[1])):
        code, said = refused(*arguments)
        assert code == FAILED and "is not an archive. Name another folder." in said

    assert not (day.parents[1] / "_delta_log").exists()


@pytest.mark.parametrize("name", ["metrics", "verify", "compact"])
def test_a_damaged_log_is_named(refused, tmp_path, name):
    log = tmp_path / "damaged" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{nonsense")

    code, said = refused(name, tmp_path / "damaged")

    assert code == FAILED and f"log of the table in {tmp_path / 'damaged'} cannot be read" in said


def test_a_scheme_that_nobody_knows_is_refused(refused, queues):
    assert refused("compact", "foo://x/y")[0] == FAILED
    assert refused("archive", queues.make(), "foo://x/y")[0] == UNAVAILABLE


@pytest.mark.parametrize("place", ["file/sub", "/proc/nothing"])
def test_a_place_where_no_folder_can_be_made_is_refused(refused, queues, tmp_path, place):
    (tmp_path / "file").write_text("x")

    code, said = refused("archive", queues.make(), tmp_path / place)

    assert code == FAILED and "Cannot create an archive" in said


@pytest.mark.parametrize("setting", ["spark.sql.shuffle.partitions=abc", "spark.sql.session.timeZone=Mars/Base"])
def test_a_setting_that_spark_refuses_is_named(refused, made, setting):
    code, said = refused("verify", made, "--conf", setting)

    assert code == UNAVAILABLE and f"refuses the setting {setting}" in said


def test_ids_that_are_no_text_are_refused(refused, made, tmp_path):
    (tmp_path / "ids").write_bytes(bytes(range(256)))

    code, said = refused("erase", made, "--ids", tmp_path / "ids", "--reason", "r")

    assert code == SETTINGS and "UTF-8" in said


@pytest.mark.parametrize("name", ["metrics", "failures"])
def test_a_result_never_replaces_an_archive_a_file_or_a_folder_of_something_else(refused, out, tmp_path, name):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("x")

    for place in (out, tmp_path / "home", tmp_path / "home" / "letter.txt"):
        code, said = refused(name, out, "--out", place)
        assert code == USAGE and "would be deleted" in said

    assert (tmp_path / "home" / "letter.txt").read_text() == "x"
    assert [file.rows for file in open_table(str(out)).files()] == [1]


def test_a_result_replaces_an_earlier_result(spark, queues, made, tmp_path):
    for _ in range(2):
        ended = CliRunner().invoke(app, ["spark", "conversations", str(made), "--out", str(tmp_path / "c")])
        assert ended.exit_code == OK, ended.stderr

    assert spark.read.parquet(str(tmp_path / "c" / "edges")).count() == 1
