"""Erasing messages from an archive: no byte of them is left below its folder, and all others are."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.merging import compact
from rowpost.archive.table import open_table
from rowpost.errors import InvalidMessage, SparkFailed
from rowpost.spark.bodies.schema_files import read_schemas
from rowpost.spark.jobs import decode, erase, replay, retain, verify
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.jobs.maintenance import RewriteCounts
from rowpost.spark.jobs.retain import Limit, Retention, Rule
from rowpost.spark.jobs.verify import contains
from tests.support.spark.archives import QUERY, ArchiveMaker, archived_rows
from tests.support.spark.messages import NOON, audit_row, error_row
from tests.support.spark.row_groups import bloom_filters_with

MARKER = "Ada-Lovelace-1815"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR_S = 3600


def personal(number: int) -> tuple:
    """A message with the marker wherever a message can have one."""
    names = ("ReplyToAddress", "OriginatingMachine", "ConversationId", "x.Customer")
    return audit_row(f"{MARKER}-{number}", body=f'{{"name": "{MARKER}"}}'.encode(), **dict.fromkeys(names, MARKER))


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory) -> ArchiveMaker:
    """Three batches over three days: the first two batches have one message of the person on the first day."""
    made = ArchiveMaker(tmp_path_factory.mktemp("whole"))
    for number in range(3):
        rows = [error_row(f"m{number}{n}", at=NOON + timedelta(days=n % 3), FailedQ="Sales@[public]") for n in range(6)]
        made.batch(number, rows + ([personal(number)] if number < 2 else []))
    return made


@pytest.fixture
def made(whole, tmp_path) -> ArchiveMaker:
    """A copy of that archive for one test."""
    return whole.copy(tmp_path / "made")


def holding(path: Path, text: str = MARKER) -> list[str]:
    """Return all files below a folder that hold a text, in their bytes or in a decompressed value."""
    return [
        name for name, info in ArchiveFolder(str(path)).contents() if info.is_file and contains(str(path), name, text)
    ]


def by_condition() -> erase.Erasure:
    return erase.Erasure(where=f"conversation_id = '{MARKER}'")


def kept(made: ArchiveMaker) -> list[str]:
    return sorted(row["message_id"] for row in archived_rows(made.address, "message_id"))


EXPECTED = sorted(f"m{number}{n}" for number in range(3) for n in range(6))


@pytest.mark.spark_promise
def test_only_files_with_the_messages_are_rewritten_no_byte_of_them_is_left_and_the_receipt_does_not_say_what_they_were(
    spark, made
):
    before = {file.path for file in open_table(made.address).files()}
    assert holding(made.path) and len(bloom_filters_with(spark, made.path, MARKER)) == 2

    receipt = erase.run(spark, made.address, by_condition(), "request 17", NOW)

    assert (receipt["erased"], receipt["files_rewritten"], receipt["unfinished"]) == (2, 2, 0)
    assert len(before & {file.path for file in open_table(made.address).files()}) == len(before) - 2
    assert kept(made) == EXPECTED
    assert holding(made.path) == [] and bloom_filters_with(spark, made.path, MARKER) == []
    report = verify.run(spark, made.address)
    assert (report.findings, report.notes) == ([], [])
    (path,) = (made.path / "_rowpost" / "erasures").iterdir()
    stored = json.loads(path.read_text())
    assert (stored["reason"], stored["time"], stored["erased"], stored["selected_by"]) == (
        "request 17",
        "2026-11-20T12:00:00+00:00",
        2,
        ["where"],
    )
    assert MARKER not in path.read_text() and "conversation_id" not in path.read_text()


def test_ids_of_rows_and_messages_are_found_in_any_case(spark, made):
    one, other = sorted(row["message_id"] for row in archived_rows(made.address) if row["conversation_id"] == MARKER)
    (id,) = (row["id"] for row in archived_rows(made.address) if row["message_id"] == one)

    receipt = erase.run(spark, made.address, erase.Erasure(ids=(id.upper(), other.lower())), "request 17", NOW)

    assert (receipt["erased"], receipt["ids"], receipt["selected_by"]) == (2, 2, ["ids"])
    assert kept(made) == EXPECTED and holding(made.path) == []


def test_files_that_an_earlier_merge_replaced_go_too(spark, made):
    compact(made.address, datetime.now(UTC))
    assert len(holding(made.path)) == 3

    erase.run(spark, made.address, by_condition(), "request 17", NOW)

    assert kept(made) == EXPECTED and holding(made.path) == []


def test_the_messages_of_a_stopped_replay_go_and_the_others_are_still_to_be_sent(spark, made):
    rows = made.path / "_rowpost" / "replays" / "k" / "attempt-1" / "rows"
    plan = replay.number(
        replay.choose(read_archive(spark, made.address), replay.Replay("k", "Sales", ramp=(5,))),
        replay.Replay("k", "Sales", ramp=(5,)),
    )
    plan.drop("day").write.partitionBy("step").parquet(str(rows))
    chosen = spark.read.parquet(str(rows)).count()
    assert any("replays" in name for name in holding(made.path))

    receipt = erase.run(spark, made.address, by_condition(), "request 17", NOW)

    assert receipt["replayed_erased"] == 2 and holding(made.path) == []
    left = spark.read.parquet(str(rows))
    assert (left.count(), left.where("step = 0").count() > 0) == (chosen - 2, True)


def test_a_replay_goes_on_although_a_step_of_it_was_erased_or_all_of_them_were(spark, made):
    rows = str(made.path / "_rowpost" / "replays" / "k" / "attempt-1" / "rows")
    asked = replay.Replay("k", "Sales", ramp=(1,))
    replay.number(replay.choose(read_archive(spark, made.address), asked), asked).drop("day").write.partitionBy(
        "step"
    ).parquet(rows)
    (first,) = replay.stored(spark, rows).where("step = 0").collect()
    left = []

    for where in (f"id = '{first.id}'", "row_version > 0"):
        erase.run(spark, made.address, erase.Erasure(where=where), "request 17", NOW)
        left.append([replay.stored(spark, rows).where(f"step = {step}").count() for step in (0, 1)])

    assert left[0][0] == 0 < left[0][1]
    assert left[1] == [0, 0]


def leave(made: ArchiveMaker, name: str, age_s: float) -> Path:
    """Write a file with the marker that is not in the table, as a killed writer would."""
    path = made.path / "queue=audit" / "day=2024-05-17" / name
    parquet.write_table(pa.table({"id": [MARKER], "headers": ["{}"], "conversation_id": [MARKER]}), path)
    os.utime(path, (datetime.now(UTC).timestamp() - age_s,) * 2)
    return path


def test_leftovers_of_committed_batches_and_old_ones_go(spark, made):
    committed, old = leave(made, f"{QUERY}-1-x.zstd.parquet", 0), leave(made, "compact-x.zstd.parquet", 2 * HOUR_S)

    receipt = erase.run(spark, made.address, by_condition(), "request 17", NOW)

    assert receipt["leftovers_deleted"] == 2
    assert not committed.exists() and not old.exists() and holding(made.path) == []


def test_the_change_data_of_deltas_own_writers_goes_and_what_one_may_be_about_to_commit_stays(spark, tmp_path):
    made = ArchiveMaker(tmp_path / "made")
    made.batch(0, [personal(0), audit_row("m1")])
    changes = made.path / "_change_data"
    changes.mkdir()
    for name in ("committed", "written"):
        parquet.write_table(pa.table({"body": [MARKER]}), changes / f"{name}.parquet")
    entry = {"cdc": {"path": "_change_data/committed.parquet", "partitionValues": {}, "size": 1, "dataChange": False}}
    (made.path / "_delta_log" / f"{2:020}.json").write_text(
        f'{{"commitInfo": {{"operation": "DELETE"}}}}\n{json.dumps(entry)}\n'
    )

    erase.run(spark, str(made.path), erase.Erasure(where=f"message_id LIKE '{MARKER}%'"), "a test", NOW)

    assert holding(made.path) == ["_change_data/written.parquet"]
    assert kept(made) == ["m1"]


def test_a_file_that_the_archiver_may_be_about_to_commit_is_kept_and_told(spark, made):
    written = leave(made, f"{QUERY}-3-x.zstd.parquet", 0)
    other = made.path / "queue=audit" / "day=2024-05-17" / f"{QUERY}-3-y.zstd.parquet"
    parquet.write_table(pa.table({"id": ["other"], "conversation_id": ["c"]}), other)

    assert erase.run(spark, made.address, by_condition(), "request 17", NOW)["unfinished"] == 1
    assert written.exists() and other.exists()

    receipt = erase.run(spark, made.address, by_condition(), "request 17", NOW, idle=True)
    assert (receipt["unfinished"], receipt["leftovers_deleted"]) == (0, 2) and holding(made.path) == []


def test_what_is_not_there_is_proved_and_what_is_there_is_named(spark, made):
    found = verify.absent(spark, made.address, [MARKER, "never"])
    assert {finding.kind for finding in found} == {"not erased"} and [finding.what for finding in found] == holding(
        made.path
    )

    erase.run(spark, made.address, by_condition(), "request 17", NOW)

    assert verify.absent(spark, made.address, [MARKER]) == []
    assert verify.absent(spark, made.address, ["m20"])


# ---------------------------------------------------------------------------------------------- copies
ALL = Retention(rules=(Rule("redact", message_type="Shop.*"),))
OF_HEADERS = erase.Erasure(where=f"contains(headers, '{MARKER}')")


def customer(number: int) -> tuple:
    """A message with the marker in the body and in a header that a redaction removes."""
    return audit_row(f"c{number}", body=f'{{"name": "{MARKER}"}}'.encode(), **{"x.Customer": MARKER})


class Copied:
    """An archive, and below it a table with all of its messages."""

    def __init__(self, spark, made: ArchiveMaker) -> None:
        self.spark, self.made, self.out, self.schemas = spark, made, made.folder / "decoded", made.folder / "schemas"

    def decode(self) -> int:
        return decode.run(self.spark, self.made.address, str(self.out), read_schemas(self.schemas))["tables"][0].added

    def retain(self, policy: Retention) -> dict:
        return retain.run(self.spark, self.made.address, policy, NOW, apply=True)[1]

    def change_only_the_archive(self, policy: Retention) -> None:
        for _ in retain.phases(self.spark, open_table(self.made.address), policy, NOW, RewriteCounts(), []):
            pass

    def erase(self, selection: erase.Erasure) -> tuple[int, int, int, dict]:
        receipt = erase.run(self.spark, self.made.address, selection, "request 17", NOW)
        return tuple(receipt[name] for name in ("erased", "copies_erased", "copies_redacted", "copies_undecided"))

    def rows(self) -> list[dict]:
        return DeltaTable(self.out / "Shop.PlaceOrder").to_pyarrow_table().to_pylist()


@pytest.fixture(scope="module")
def decoded(spark, tmp_path_factory) -> ArchiveMaker:
    """Three messages, and a table with all of them. The names of two fields are those that a job could give to columns of its own."""
    decoded = Copied(spark, ArchiveMaker(tmp_path_factory.mktemp("decoded")))
    decoded.made.batch(0, [customer(1), customer(2), error_row("m3")])
    decoded.schemas.mkdir()
    (decoded.schemas / "Shop.PlaceOrder.ddl").write_text("name STRING, action STRING, _id STRING")
    decoded.decode()
    return decoded.made


@pytest.fixture
def copied(spark, decoded, tmp_path) -> Copied:
    return Copied(spark, decoded.copy(tmp_path / "copied"))


def test_what_is_redacted_in_the_archive_is_redacted_in_its_copies_and_not_decoded_again(copied):
    assert holding(copied.out)

    done = copied.retain(ALL)

    assert (done["redacted"], done["copies_redacted"], done["copies_deleted"], len(copied.rows())) == (
        3,
        2,
        0,
        3,
    )  # the third one's body is empty
    assert {(row["name"], row["action"], row["_error"], row["endpoint"]) for row in copied.rows()} == {
        (None, None, None, "Sales")
    }
    assert holding(copied.out) == [] and copied.decode() == 0
    assert copied.retain(ALL)["copies_redacted"] == 0


@pytest.mark.parametrize(
    "policy", [Retention(rules=(Rule("delete", larger_than=2),)), Retention(limits=(Limit(1),))], ids=["rule", "limit"]
)
def test_what_is_deleted_from_the_archive_is_deleted_from_its_copies(copied, policy):
    done = copied.retain(policy)

    assert done["deleted"] == done["copies_deleted"] > 0
    assert holding(copied.out) == [] and copied.decode() == 0


def test_erase_after_a_redaction_leaves_nothing_of_the_person_in_a_copy(spark, copied):
    copied.change_only_the_archive(ALL)
    assert {
        Path(finding.what).is_relative_to(copied.out) for finding in verify.absent(spark, copied.made.address, [MARKER])
    } == {True}

    assert copied.erase(OF_HEADERS) == (0, 0, 2, {})
    assert holding(copied.out) == [] and verify.absent(spark, copied.made.address, [MARKER]) == []


def test_erase_says_to_which_copies_its_condition_cannot_be_applied(spark, copied):
    copied.change_only_the_archive(Retention(rules=(Rule("delete", larger_than=2),)))
    table = str(copied.out / "Shop.PlaceOrder")

    assert copied.erase(OF_HEADERS) == (0, 0, 0, {table: 2})
    assert {
        Path(finding.what).is_relative_to(table) for finding in verify.absent(spark, copied.made.address, [MARKER])
    } == {True}
    assert copied.erase(erase.Erasure(where="message_id LIKE 'c%'")) == (0, 2, 0, {})
    assert verify.absent(spark, copied.made.address, [MARKER]) == [] and holding(copied.out) == []


def test_copies_of_two_archives_in_one_table_are_told_apart(spark, copied, tmp_path):
    other = ArchiveMaker(tmp_path / "other")
    other.batch(0, [customer(7)])
    decode.run(spark, other.address, str(copied.out), read_schemas(copied.schemas))

    assert copied.erase(OF_HEADERS) == (2, 2, 0, {})
    assert [row["name"] for row in copied.rows() if row["name"]] == [MARKER]


def test_a_place_that_is_gone_is_not_taken_for_one_without_the_text(spark, copied):
    shutil.move(copied.out, copied.out.with_name("moved"))

    assert copied.retain(ALL)["copies_missing"] == [str(copied.out)]
    assert [(finding.kind, finding.what) for finding in verify.absent(spark, copied.made.address, ["never"])] == [
        ("not searched", str(copied.out))
    ]


def test_a_table_whose_log_may_have_ids_is_refused_before_anything_is_changed(spark, made):
    DeltaTable(made.path).alter.set_table_properties({"delta.dataSkippingStatsColumns": "row_version,id"})

    with pytest.raises(SparkFailed, match="Copy the rows to a new table with"):
        erase.run(spark, made.address, by_condition(), "request 17", NOW)

    assert holding(made.path)


def test_a_condition_that_cannot_be_read_changes_nothing(spark, made):
    with pytest.raises(InvalidMessage, match="conversation_id"):
        erase.run(spark, made.address, erase.Erasure(where="no_such = 1"), "request 17", NOW)
    assert holding(made.path)
