"""The jobs compact, retain and verify on an archive: what they change, and what they find."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import parquet

from rowpost.archive.columns import MESSAGE
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.merging import FILE_BYTES, compact, small_files
from rowpost.archive.table import DataFile, open_table
from rowpost.errors import SettingsError, SparkFailed
from rowpost.spark.explain import explained
from rowpost.spark.jobs import retain, verify
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.jobs.retain import Limit, Retention, Rule, read_policy
from rowpost.spark.jobs.verify import contains
from tests.support.spark.archives import QUERY, ArchiveMaker, archived_rows
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw

NOW = NOON + timedelta(days=10)
SECRET = "Ada Lovelace"
OTHER = "22222222-0000-0000-0000-000000000000"


def fill(made: ArchiveMaker) -> None:
    """Write an archive of two queues and two days: four batches of one stream with a file for each day, and one batch of another."""
    for number in range(4):
        personal = {
            "x.Customer": SECRET,
            "ReplyToAddress": f"{SECRET}@[dbo]",
            "OriginatingMachine": f"PC of {SECRET}",
            "$.diagnostics.originating.hostid": SECRET,
        }
        rows = [
            audit_row(
                f"m{number}{n}",
                sent=NOON + timedelta(days=n % 2),
                body=SECRET.encode(),
                ConversationId=f"c{4 - n}",
                **personal,
            )
            for n in range(4)
        ]
        made.batch(number, rows)
    failed = [error_row("f", at=NOON, **{"ExceptionInfo.Message": SECRET}), raw("{broken", SECRET.encode())]
    ArchiveMaker(made.folder, OTHER).batch(0, failed, "error")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The folder of a Delta table, which can be copied."""
    made = ArchiveMaker(tmp_path_factory.mktemp("made"))
    fill(made)
    return made.path


@pytest.fixture
def out(made, tmp_path) -> str:
    """The folder of an archive for one test."""
    return str(shutil.copytree(made, tmp_path / "out"))


def root(out: str) -> Path:
    return Path(out)


def ids(path) -> list[str]:
    return sorted(row["message_id"] for row in archived_rows(path, "message_id"))


def files(path) -> dict[tuple[str, str], int]:
    """Count the table's files by queue and day."""
    found: dict[tuple[str, str], int] = {}
    for file in open_table(path).files():
        found[file.queue, file.day] = found.get((file.queue, file.day), 0) + 1
    return found


def holding(path: str, text: str) -> list[str]:
    """Return the files below an archive that hold a text, decompressed."""
    return [name for name, info in ArchiveFolder(path).contents() if info.is_file and contains(path, name, text)]


# ---------------------------------------------------------------------------------------------- compact
def test_compact_merges_the_files_of_a_day_and_keeps_the_old_ones_for_a_day(spark, out):
    before = ids(out)

    counts = compact(out, datetime.now(UTC))

    assert ids(out) == before
    assert {day: count for day, count in files(out).items() if day[0] == "audit"} == {
        ("audit", "2024-05-17"): 1,
        ("audit", "2024-05-18"): 1,
    }
    assert counts == {"days": 2, "files_before": 8, "files_after": 2, "messages": 16, "skipped": 0, "vacuumed": 0}
    assert len(open_table(out).replaced()) == 8
    merged = [
        parquet.read_table(root(out) / file.path, columns=["conversation_id"])
        for file in open_table(out).files()
        if file.queue == "audit"
    ]
    assert [rows.column(0).to_pylist() for rows in merged] == [["c2"] * 4 + ["c4"] * 4, ["c1"] * 4 + ["c3"] * 4]
    report = verify.run(spark, out)
    assert (report.findings, report.notes) == ([], [])


def test_young_files_are_left_alone_and_a_second_run_finds_nothing(spark, out):
    assert compact(out, datetime.now(UTC), timedelta(days=1))["days"] == 0
    compact(out, datetime.now(UTC))
    assert compact(out, datetime.now(UTC))["days"] == 0


def test_only_files_of_similar_size_are_merged_by_the_archiver_and_none_beyond_the_limit():
    def made(number: int, megabytes: float) -> DataFile:
        return DataFile(f"f{number}", "audit", "2024-05-17", int(megabytes * (1 << 20)), 1, number)

    tiny, medium, large = (
        [made(n, 0.1) for n in range(10)],
        [made(10 + n, 20) for n in range(9)],
        [made(20 + n, 100) for n in range(12)],
    )

    assert small_files([*tiny, *medium, *large], 10) == [tuple(tiny)]
    groups = small_files([*medium], 2)
    assert [sum(file.bytes for file in group) <= FILE_BYTES for group in groups] == [True, True]
    assert sum(map(len, groups)) == 9


# ---------------------------------------------------------------------------------------------- retain
def test_retain_shows_first_and_changes_nothing(spark, out):
    before = ids(out)
    policy = Retention(rules=(Rule("delete", queue="audit", older_than=timedelta(days=9)),))

    steps, counts = retain.run(spark, out, policy, NOW)

    assert steps == [
        {"queue": "audit", "day": "2024-05-17", "action": "delete", "messages": 8, "bytes": 8 * len(SECRET)}
    ]
    assert counts["deleted"] == 0 and ids(out) == before


def test_retain_deletes_and_redacts_and_a_second_time_finds_nothing(spark, out):
    policy = Retention(rules=(
        Rule("delete", queue="audit", older_than=timedelta(days=9), message_type="Shop.Place*"),
        Rule("redact", queue="*", larger_than=3),
    ))  # fmt: skip

    _, counts = retain.run(spark, out, policy, NOW, apply=True)
    again = retain.run(spark, out, policy, NOW, apply=True)

    assert (counts["deleted"], counts["redacted"]) == (8, 9)
    assert again[0] == [] and again[1]["days"] == 0
    left = archived_rows(out)
    assert len(left) == 10
    redacted = [row for row in left if row["body"] is None]
    assert len(redacted) == 9 and all(row["body_bytes"] == len(SECRET) for row in redacted)
    assert {row["message_type"] for row in redacted} == {"Shop.PlaceOrder", None}
    assert {(row["sending_endpoint"], row["endpoint"]) for row in redacted} == {("Web", "Sales"), (None, None)}
    report = verify.run(spark, out)
    assert (report.findings, report.notes) == ([], [])
    assert [name for name in holding(out, SECRET) if "queue=audit" in name] == []


def test_the_oldest_days_over_a_limit_go_whole(spark, out):
    youngest = sum(file.bytes for file in open_table(out).files() if (file.queue, file.day) == ("audit", "2024-05-18"))
    policy = Retention(limits=(Limit(youngest, "aud*"),))

    steps, counts = retain.run(spark, out, policy, NOW, apply=True)

    assert [(step["queue"], step["day"], step["action"]) for step in steps] == [("audit", "2024-05-17", "limit")]
    assert counts["deleted"] == 8
    assert ("audit", "2024-05-18") in files(out) and ("audit", "2024-05-17") not in files(out)


def test_only_files_with_such_messages_are_rewritten(spark, out):
    before = {file.path for file in open_table(out).files()}

    retain.run(spark, out, Retention(rules=(Rule("redact", queue="error"),)), NOW, apply=True)

    after = {file.path for file in open_table(out).files()}
    assert {path for path in before if "queue=audit" in path} <= after
    assert not {path for path in before if "queue=error" in path} & after


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "neither rules"), ("rules: 1", "a list"), ("rules: [1]", "a mapping"), ("rule: []", "did you mean rules"),
        ("rules: [{action: burn}]", "burn"), ("rules: [{queue: a}]", "action: missing"), ("rules: [{action: delete}]", "every message"),
        ("rules: [{action: delete, older_than: soon}]", "soon"), ("rules: [{action: delete, older_than: 90}]", "a text, not 90"),
        ("rules: [{action: redact, size: '1'}]", "size"), ("limits: [{queue: a}]", "total"), ("limits: [{total: 50 apples}]", "apples"),
        ("rules: [", "line 1"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_meant_is_refused_with_what_to_write(tmp_path, text, says):
    path = tmp_path / "policy.yml"
    path.write_text(text)

    with pytest.raises(SettingsError) as refused:
        read_policy(path)
    assert says in str(refused.value) and str(path) in str(refused.value)


def test_a_policy_is_read(tmp_path):
    path = tmp_path / "policy.yml"
    path.write_text("rules:\n  - {queue: a*, older_than: 2w, action: redact}\nlimits: [{total: 1KB}]\n")

    assert read_policy(path) == Retention((Rule("redact", "a*", older_than=timedelta(days=14)),), (Limit(1024),))


# ---------------------------------------------------------------------------------------------- verify
def test_a_whole_archive_has_no_finding(spark, out):
    report = verify.run(spark, out)

    assert (report.findings, report.notes) == ([], [])
    expected = {"messages": 18, "files": 10, "unreadable": 0, "duplicates": 0, "findings": 0, "leftovers": 0}
    assert {name: report.counts[name] for name in expected} == expected
    assert [(queue, day, rows) for queue, day, rows, _ in report.days][:2] == [
        ("audit", "2024-05-17", 8),
        ("audit", "2024-05-18", 8),
    ]


def test_what_killed_writers_left_is_a_note_that_readers_never_see(spark, out):
    day = root(out) / "queue=audit" / "day=2024-05-17"
    shutil.copy(next(day.iterdir()), day / f"{QUERY}-9-1.zstd.parquet")

    (root(out) / "results").mkdir()  # of another program
    shutil.copy(next(day.iterdir()), root(out) / "results" / "x.parquet")

    report = verify.run(spark, out)

    assert report.findings == [] and report.counts["messages"] == 18 == len(ids(out))
    assert [note.what for note in report.notes] == [f"queue=audit/day=2024-05-17/{QUERY}-9-1.zstd.parquet"]
    assert verify.sweep_all(out) == 1
    assert verify.run(spark, out).notes == []


def test_messages_that_two_streams_archived_are_found_and_repaired(spark, out, tmp_path):
    rows = [row for row in archived_rows(out) if (row["queue"], str(row["day"])) == ("audit", "2024-05-17")][:3]
    again = [tuple(row[name] for name in MESSAGE.names) for row in rows]
    second = ArchiveMaker(tmp_path, "33333333-0000-0000-0000-000000000000")
    second.batch(0, again)

    report = verify.run(spark, out)
    assert [finding.kind for finding in report.findings] == ["duplicate"] * 3

    assert verify.repair(spark, out) == {"files_taken_out": 0, "messages_lost": 0, "copies_removed": 3}
    report = verify.run(spark, out)
    assert (report.findings, report.counts["messages"]) == ([], 18)


@pytest.mark.parametrize("kind", ["unreadable file", "missing file"])
def test_a_file_that_cannot_be_read_is_named_and_stops_a_compaction_and_can_be_taken_out(spark, out, kind):
    file = open_table(out).files()[0]
    path = root(out) / file.path
    path.unlink() if kind == "missing file" else path.write_bytes(path.read_bytes()[:50])

    report = verify.run(spark, out)

    assert [(finding.kind, finding.what) for finding in report.findings] == [(kind, file.path)]
    with pytest.raises(SparkFailed, match=path.name), explained():
        compact(out, datetime.now(UTC))
    assert verify.repair(spark, out) == {"files_taken_out": 1, "messages_lost": file.rows, "copies_removed": 0}
    assert verify.run(spark, out).findings == []
    assert len(ids(out)) == 18 - file.rows


def test_what_a_queue_still_holds_is_told_apart_from_what_was_missed(spark, out):
    kept = read_archive(spark, out).where("queue = 'audit'").orderBy("row_version").collect()
    archived = read_archive(spark, out).where(f"queue = 'audit' and row_version <> {kept[1].row_version}")
    waiting = messages(spark, *[raw("", number=row.row_version) for row in kept], raw("", number=1_000_000))

    assert verify.compare(archived, waiting) == {"removed": 0, "not_archived_yet": 1, "missed": 1}
