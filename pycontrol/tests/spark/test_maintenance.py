"""Two jobs of maintenance in every order of their phases, with the archiver beside them: nothing is lost, doubled or brought back."""

import itertools
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from rowpost.archive import writer
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.maintenance_lock import maintenance_lock
from rowpost.archive.merging import AUTOMATIC_FILES, merge, small_files
from rowpost.archive.table import ArchiveTable, DataFile, open_table
from rowpost.errors import SparkFailed
from rowpost.spark.jobs import erase, retain, verify
from rowpost.spark.jobs.maintenance import RewriteCounts
from rowpost.spark.jobs.retain import Retention, Rule
from rowpost.spark.jobs.verify import contains
from tests.support.spark.archives import QUERY, ArchiveMaker, archived_rows
from tests.support.spark.messages import audit_row

SECRET = "Ada-Lovelace-1815"
PAY = {"EnclosedMessageTypes": "Shop.Pay, Shop"}
KINDS = ("compact", "delete", "redact", "erase")
PHASES = 4  # after which a job is stopped, at most


def rows(batch: int) -> list[tuple]:
    """Two messages that stay, and two that retain and erase remove. All are of one day."""
    kept = [audit_row(f"kept-{batch}-{n}") for n in range(2)]
    return kept + [audit_row(f"gone-{batch}-{n}", body=SECRET.encode(), **PAY) for n in range(2)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> ArchiveMaker:
    maker = ArchiveMaker(tmp_path_factory.mktemp("whole"))
    for number in range(3):
        maker.batch(number, rows(number))
    return maker


@pytest.fixture
def made(whole, tmp_path) -> ArchiveMaker:
    return whole.copy(tmp_path / "made")


def phases(spark, made: ArchiveMaker, kind: str) -> Iterator[str]:
    """Start a job without its lock, so that only the log of the table protects the messages."""
    table, counts = open_table(made.address), RewriteCounts()
    if kind == "compact":
        return merging(table)
    if kind == "erase":
        return erase.phases(spark, table, erase.Erasure(where="message_type = 'Shop.Pay'"), counts)
    return retain.phases(
        spark, table, Retention(rules=(Rule(kind, message_type="Shop.Pay"),)), datetime.now(UTC), counts, []
    )


def merging(table: ArchiveTable) -> Iterator[str]:
    table.refresh()
    groups = small_files(table.files(), 2)
    yield "planned"
    yield from (phase for phase, *_ in merge(table, groups))


def advance(job: Iterator[str], steps: int) -> bool:
    """Run some phases of a job. Returns False if it ends before."""
    return sum(1 for _ in itertools.islice(job, steps)) == steps


def check(spark, made: ArchiveMaker, batches: int, kinds: set[str]) -> None:
    """Check the messages of an archive after its jobs have ended."""
    found = archived_rows(made.address, "message_id", "body")
    expected = {row[0]: 1 for number in range(batches) for row in ((f"kept-{number}-{n}",) for n in range(2))}
    if not kinds & {"delete", "erase"}:
        expected |= {f"gone-{number}-{n}": 1 for number in range(batches) for n in range(2)}
    assert Counter(row["message_id"] for row in found) == expected
    if "redact" in kinds:
        assert not [row for row in found if row["body"] == SECRET.encode()]
    report = verify.run(spark, made.address)
    assert (report.findings, report.notes) == ([], [])
    if kinds - {"compact"}:
        assert not [
            path
            for path, info in ArchiveFolder(str(made.path)).contents()
            if info.is_file and contains(str(made.path), path, SECRET)
        ]


def in_order(spark, made: ArchiveMaker, first: str, second: str, of_first: int, of_second: int) -> bool:
    """Run phases of the first job, then a batch, then phases of the second one, then the rest of both. False if there are fewer phases."""
    one, other = phases(spark, made, first), phases(spark, made, second)
    if not advance(one, of_first):
        return False
    made.batch(3, rows(3))
    made.batch(3, rows(3))  # Spark repeats a batch that it has not logged
    complete = advance(other, of_second)
    for job in (one, other):
        for _ in job:
            pass
    # what a job did before its last look at the table holds for the new batch too
    for kind in {first, second} - {"compact"}:
        for _ in phases(spark, made, kind):
            pass
    check(spark, made, 4, {first, second})
    return complete


@pytest.mark.parametrize(
    ("first", "second"),
    [("compact", "compact"), ("compact", "delete"), ("redact", "compact"), ("erase", "compact"), ("delete", "redact")],
)
def test_a_second_job_between_the_new_files_of_the_first_and_their_commit(spark, made, first, second):
    assert in_order(spark, made, first, second, 2, 100) is False


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_two_jobs_in_every_order_of_their_phases(spark, whole, tmp_path, first, second):
    done = 0
    for of_first, of_second in itertools.product(range(1, PHASES + 1), range(1, PHASES + 1)):
        done += in_order(spark, whole.copy(tmp_path / f"{of_first}-{of_second}"), first, second, of_first, of_second)
    assert done >= 4


def test_a_job_alone_looks_at_what_the_archiver_adds_meanwhile(spark, made):
    job = phases(spark, made, "erase")
    advance(job, 3)
    made.batch(3, rows(3))
    for _ in job:
        pass

    check(spark, made, 4, {"erase"})


def test_an_empty_first_batch_and_an_archive_without_messages_are_no_finding(spark, tmp_path):
    made = ArchiveMaker(tmp_path)
    made.batch(0, [])
    assert verify.run(spark, made.address).findings == []

    made.batch(1, rows(1))

    report = verify.run(spark, made.address)
    assert (report.findings, report.notes, report.counts["messages"]) == ([], [], 4)


def test_the_archiver_merges_its_small_files_by_itself(made, monkeypatch):
    monkeypatch.setattr(writer, "AUTOMATIC_FILES", 4)
    for number in range(3, 8):
        made.batch(number, rows(number))

    table = open_table(made.address)
    assert len(table.files()) < 4
    assert table.last_batch(QUERY) == 7
    found = Counter(row["message_id"] for row in archived_rows(made.address, "message_id"))
    assert (len(found), set(found.values())) == (32, {1})


@pytest.mark.parametrize(("megabytes", "merged"), [(31, True), (33, False)])
def test_the_archiver_leaves_files_of_32_mb_and_more_to_compact(megabytes, merged):
    files = [DataFile(f"f{number}", "audit", "2026-11-20", megabytes << 20, 1) for number in range(AUTOMATIC_FILES)]

    assert bool(small_files(files, AUTOMATIC_FILES)) is merged
    assert small_files(files, 2, tiers=(64 << 20,))


@pytest.mark.timeout(120)
def test_a_table_that_only_takes_new_files_is_merged_and_refuses_erase_in_one_sentence(spark, made):
    """A merge says that it changes no rows, which Delta allows."""
    DeltaTable(made.path).alter.set_table_properties({"delta.appendOnly": "true"})

    list(phases(spark, made, "compact"))
    with pytest.raises(SparkFailed, match=r"Cannot change .*(?i:append).*Nothing was changed"):
        list(phases(spark, made, "erase"))
    made.batch(3, rows(3))

    assert len(open_table(made.address).files()) == 2
    assert len(archived_rows(made.address, "id")) == 16


# ---------------------------------------------------------------------------------------------- the log
def test_a_commit_on_a_snapshot_that_is_not_the_newest_changes_nothing(spark, made):
    """The protection of every job. It must hold with every version of deltalake that the package allows."""
    stale, table = open_table(made.address), open_table(made.address)
    files = stale.files()

    assert table.commit(remove=files[:1], note={"job": "test"}) is True
    assert stale.commit(remove=files[:1], note={"job": "test"}) is False
    assert stale.commit(remove=files[1:2], note={"job": "test"}) is False
    stale.refresh()
    assert not stale.are_live(files[:1]) and stale.are_live(files[1:])


def test_an_entry_of_deltas_log_is_not_written_twice(made):
    with pytest.raises(CommitFailedError):
        DeltaTable(str(made.path), version=0).create_write_transaction(
            [],
            "append",
            DeltaTable(str(made.path)).schema(),
            ["queue", "day"],
            commit_properties=CommitProperties(max_commit_retries=0),
        )


def test_deltalakes_own_compaction_of_one_snapshot_by_two_is_not_relied_on(tmp_path):
    """Some versions of deltalake refuse the second compaction, others double the rows. If this fails, the guide can drop its warning."""
    for number in range(2):
        write_deltalake(str(tmp_path), pa.table({"n": [number]}), mode="append")
    one, other = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))

    one.optimize.compact()
    other.optimize.compact()

    assert DeltaTable(str(tmp_path)).count() == 4


def test_a_file_that_is_gone_is_not_committed(spark, made):
    table = open_table(made.address)
    from rowpost.archive.parts import NewFile

    with pytest.raises(SparkFailed, match=r"queue=a/x\.parquet"):
        table.commit([NewFile("queue=a/x.parquet", "a", "2024-05-17", 1, 1, statistics="{}")], note={"job": "test"})


# ---------------------------------------------------------------------------------------------- the lock
@pytest.fixture
def folder(tmp_path) -> ArchiveFolder:
    return ArchiveFolder(str(tmp_path))


def test_a_second_job_is_told_who_maintains_the_archive(folder):
    with (
        maintenance_lock(folder, "compact"),
        pytest.raises(
            SparkFailed, match=f"compact has been running since .* on {socket.gethostname()}, process {os.getpid()}"
        ),
        maintenance_lock(folder, "erase", wait_s=0),
    ):
        pass

    with maintenance_lock(folder, "erase", wait_s=0):  # the first has given it back
        pass


@pytest.mark.parametrize("holder", ["exited", "expired"])
def test_the_lock_of_a_job_that_has_ended_is_taken_over(folder, holder):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    soon = datetime.now(UTC) + timedelta(minutes=10)
    given = {
        "exited": (socket.gethostname(), ended.pid, soon),
        "expired": ("elsewhere", 1, datetime.now(UTC) - timedelta(seconds=1)),
    }[holder]
    host, pid, expires = given
    folder.write(
        "maintenance.json", {"job": "compact", "host": host, "pid": pid, "since": "x", "expires": expires.isoformat()}
    )

    with maintenance_lock(folder, "erase", wait_s=0):
        assert json.loads((Path(folder.path) / "_rowpost" / "maintenance.json").read_text())["job"] == "erase"


def test_a_lock_whose_writer_was_killed_before_it_was_written_is_taken_over_later(folder):
    path = Path(folder.path) / "_rowpost" / "maintenance.json"
    path.parent.mkdir()
    path.touch()

    with pytest.raises(SparkFailed, match="another job"), maintenance_lock(folder, "erase", wait_s=0):
        pass
    os.utime(path, (0, 0))
    with maintenance_lock(folder, "erase", wait_s=0):
        pass


def test_a_lock_on_another_machine_is_respected(folder):
    soon = datetime.now(UTC) + timedelta(minutes=10)
    folder.write(
        "maintenance.json",
        {"job": "compact", "host": "elsewhere", "pid": 1, "since": "14:02", "expires": soon.isoformat()},
    )

    with pytest.raises(SparkFailed, match="elsewhere"), maintenance_lock(folder, "erase", wait_s=0):
        pass
