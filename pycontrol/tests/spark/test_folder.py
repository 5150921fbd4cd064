"""The jobs compact, retain and verify: atomic changes of an archive's folder, and findings."""

import json
import shutil
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rowpost.errors import SettingsError, SparkFailed
from rowpost.spark.archive.folder import ArchiveFolder, Batch
from rowpost.spark.archive.policy import Limit, Policy, Rule, read_policy
from rowpost.spark.jobs import compact, retain, verify
from rowpost.spark.jobs.archive import BatchWriter, archive, read_archive
from tests.support.spark.messages import NOON, audit_row, error_row, messages, raw

NOW = NOON + timedelta(days=10)
SECRET = "Ada Lovelace"


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """An archive of two queues and two days, with four batches of one stream. Batch 3 is the newest."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "metadata").write_text(json.dumps({"id": "1f0c2a9e-0"}))
    out = folder / "out"
    write = BatchWriter(str(out), str(folder))
    for number in range(4):
        rows = [audit_row(f"m{number}{n}", sent=NOON + timedelta(days=n % 2), body=SECRET.encode(), **{"x.Customer": SECRET}) for n in range(4)]
        write(archive(messages(spark, *rows), "audit").coalesce(1), number)
    failed = [error_row("f", at=NOON, **{"ExceptionInfo.Message": SECRET}), raw("{broken", SECRET.encode())]
    write(archive(messages(spark, *failed), "error").coalesce(1), 0)
    return out


@pytest.fixture
def out(made, tmp_path) -> str:
    """A copy of the archive for one test."""
    return str(shutil.copytree(made, tmp_path / "out"))


def ids(spark, path) -> list[str]:
    return sorted(row.message_id for row in read_archive(spark, path).select("message_id").collect())


def names(path) -> set[str]:
    return {f"{batch.queue} {batch.day} {batch.name[:10]}" for batch in ArchiveFolder(path).batches()}


# ---------------------------------------------------------------------------------------------- compact
def test_compact_puts_batches_of_a_day_together_but_for_the_newest_of_a_stream(spark, out):
    before = ids(spark, out)

    counts = compact.run(spark, out, datetime.now(UTC), timedelta(0))

    assert ids(spark, out) == before
    assert {name for name in names(out) if name.startswith("audit")} == {
        f"audit {day} {name}" for day in ("2024-05-17", "2024-05-18") for name in ("changed-20", "1f0c2a9e-3")
    }
    assert (counts["days"], counts["batches"], counts["files_before"], counts["files_after"], counts["messages"]) == (2, 6, 6, 2, 12)
    assert verify.run(spark, out).findings == []


def test_young_batches_are_left_alone_and_a_second_run_finds_nothing(spark, out):
    assert compact.run(spark, out, datetime.now(UTC), timedelta(days=1))["days"] == 0
    compact.run(spark, out, datetime.now(UTC), timedelta(0))
    assert compact.run(spark, out, datetime.now(UTC), timedelta(0))["days"] == 0


def test_a_change_that_was_interrupted_anywhere_is_finished_and_nothing_is_there_twice(spark, out, monkeypatch):
    before = ids(spark, out)
    steps = 0
    while True:  # interrupt it after its first step, then after three more, …, until it completes
        copy = f"{out}-{steps}"
        shutil.copytree(out, copy)
        with monkeypatch.context() as patch:
            left = Steps(steps)
            patch.setattr(ArchiveFolder, "__init__", interrupted(left))
            with suppress(Interrupted):
                compact.run(spark, copy, datetime.now(UTC), timedelta(0))
        ArchiveFolder(copy).recover()
        assert ids(spark, copy) == before, steps
        if left.number > 0:
            break
        steps += 3
    assert steps > 6


class Interrupted(Exception):
    pass


class Steps:
    def __init__(self, number: int) -> None:
        self.number = number


class Interrupting:
    """A file system that raises Interrupted after a number of changes."""

    def __init__(self, files, left: Steps) -> None:
        self._files, self._left = files, left

    def __getattr__(self, name: str):
        method = getattr(self._files, name)
        if name not in ("move", "delete_file", "delete_dir", "create_dir"):
            return method

        def counted(*arguments, **options):
            if self._left.number == 0:
                raise Interrupted
            self._left.number -= 1
            return method(*arguments, **options)

        return counted


def interrupted(left: Steps):
    original = ArchiveFolder.__init__

    def make(self, path: str) -> None:
        original(self, path)
        self.files = Interrupting(self.files, left)

    return make


# ---------------------------------------------------------------------------------------------- retain
def test_retain_shows_first_and_changes_nothing(spark, out):
    before = ids(spark, out)
    policy = Policy(rules=(Rule("delete", queue="audit", older_than=timedelta(days=9)),))

    steps, counts = retain.run(spark, out, policy, NOW)

    assert steps == [{"queue": "audit", "day": "2024-05-17", "action": "delete", "messages": 8, "bytes": 8 * len(SECRET)}]
    assert counts["deleted"] == 0 and ids(spark, out) == before


def test_retain_deletes_and_redacts_and_a_second_time_finds_nothing(spark, out):
    policy = Policy(rules=(
        Rule("delete", queue="audit", older_than=timedelta(days=9), message_type="Shop.Place*"),
        Rule("redact", queue="*", larger_than=3),
    ))  # fmt: skip

    _, counts = retain.run(spark, out, policy, NOW, apply=True)
    again = retain.run(spark, out, policy, NOW, apply=True)

    assert (counts["deleted"], counts["redacted"]) == (8, 9)
    assert again[0] == [] and again[1]["days"] == 0
    left = read_archive(spark, out).collect()
    assert len(left) == 10
    redacted = [row for row in left if row.body is None]
    assert len(redacted) == 9 and all(row.body_bytes == len(SECRET) for row in redacted)
    assert SECRET not in " ".join(row.headers for row in redacted)
    assert {row.message_type for row in redacted} == {"Shop.PlaceOrder", None}
    assert verify.run(spark, out).findings == []
    assert not any(SECRET.encode() in file.read_bytes() for file in Path(out).rglob("*") if file.is_file() and "queue=audit" in str(file))


def test_the_oldest_days_over_a_limit_go_whole(spark, out):
    batches = ArchiveFolder(out).batches()
    youngest = sum(batch.bytes for batch in batches if (batch.queue, batch.day) == ("audit", "2024-05-18"))
    policy = Policy(limits=(Limit(youngest, "aud*"),))

    steps, counts = retain.run(spark, out, policy, NOW, apply=True)

    assert [(step["queue"], step["day"], step["action"]) for step in steps] == [("audit", "2024-05-17", "limit")]
    assert counts["deleted"] == 8
    assert {name[:16] for name in names(out)} >= {"audit 2024-05-18"} and "audit 2024-05-17" not in {name[:16] for name in names(out)}


def test_a_replayed_batch_after_retain_is_there_once(spark, out):
    policy = Policy(rules=(Rule("redact", queue="audit"),))
    retain.run(spark, out, policy, NOW, apply=True)

    assert {batch.name for batch in ArchiveFolder(out).batches()} == {f"1f0c2a9e-{n}" for n in range(4)}


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

    assert read_policy(path) == Policy((Rule("redact", "a*", older_than=timedelta(days=14)),), (Limit(1024),))


# ---------------------------------------------------------------------------------------------- verify
def test_a_whole_archive_has_no_finding(spark, out):
    report = verify.run(spark, out)

    assert report.findings == []
    assert report.counts == {"messages": 18, "batches": 10, "files": 10, "unreadable": 0, "duplicates": 0, "findings": 0}
    assert [(queue, day, rows) for queue, day, rows, _ in report.days][:2] == [("audit", "2024-05-17", 8), ("audit", "2024-05-18", 8)]


def test_what_is_wrong_with_an_archive_is_found(spark, out):
    root = Path(out)
    shutil.rmtree(root / "queue=audit" / "day=2024-05-17" / "batch=1f0c2a9e-1")
    shutil.rmtree(root / "queue=audit" / "day=2024-05-18" / "batch=1f0c2a9e-1")
    shutil.copytree(root / "queue=audit" / "day=2024-05-17" / "batch=1f0c2a9e-2", root / "queue=audit" / "day=2024-05-17" / "batch=ffffffff-0")
    (root / ".spark-staging-1" / "day=x").mkdir(parents=True)
    (root / ".spark-staging-1" / "day=x" / "part.parquet").write_bytes(b"half")
    (root / "_rowpost" / "new" / "changed-1").mkdir(parents=True)

    report = verify.run(spark, out)

    kinds = sorted(finding.kind for finding in report.findings)
    assert kinds == ["duplicate", "duplicate", "leftover", "leftover", "missing batches"]
    assert "batches 1 of 1f0c2a9e" in next(finding.what for finding in report.findings if finding.kind == "missing batches")
    assert ArchiveFolder(out).sweep() == [".spark-staging-1", "_rowpost/new/changed-1"]
    assert "leftover" not in {finding.kind for finding in verify.run(spark, out).findings}


def test_a_half_written_batch_is_named_and_stops_a_compaction_before_it_changes_anything(spark, out):
    half = next(Path(out).glob("queue=audit/*/batch=1f0c2a9e-0/*.parquet"))
    half.write_bytes(half.read_bytes()[:50])

    report = verify.run(spark, out)

    assert [(finding.kind, finding.what) for finding in report.findings] == [("unreadable file", str(half))]
    with pytest.raises(SparkFailed, match=half.name):
        compact.run(spark, out, datetime.now(UTC), timedelta(0))


def test_what_a_queue_still_holds_is_told_apart_from_what_was_missed(spark, out):
    kept = read_archive(spark, out).where("queue = 'audit'").orderBy("row_version").collect()
    archived = read_archive(spark, out).where(f"queue = 'audit' and row_version <> {kept[1].row_version}")
    waiting = messages(spark, *[raw("", number=row.row_version) for row in kept], raw("", number=1_000_000))

    assert verify.compare(archived, waiting) == {"not_archived_yet": 1, "missed": 1}


def test_batches_that_a_change_replaced_are_not_missing():
    batches = [Batch("audit", "d", name, "") for name in ("k-0", "k-4", "changed-20240101-12345678")]
    journal = [{"queue": "audit", "batches": ["k-1", "k-2"]}]

    assert verify.missing_batches(batches, journal) == {("audit", "k"): [3]}
