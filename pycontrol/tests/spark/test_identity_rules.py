"""The guard between a checkpoint and a table: which batches are written, skipped and refused, and what the table's log keeps. Without Spark."""

import ast
import inspect
import re

import pytest
from deltalake import DeltaTable, Field

from rowpost.archive import identity
from rowpost.archive.address import located
from rowpost.archive.identity import (
    CheckpointProgress,
    Recorded,
    StreamBatch,
    by_epoch,
    check_known,
    check_start,
    is_new,
    recorded_after,
)
from rowpost.archive.table import create_table, open_table
from rowpost.errors import SparkFailed
from rowpost.spark.jobs.archive import default_checkpoint

QUERY, OTHER = "1f0c2a9e-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"
AUDIT, ERROR = "db/audit#1", "db/error#2"
WAY_OUT = "Name a new checkpoint."


def tail(row_version: int, epoch: str = AUDIT, **more) -> dict:
    return {epoch: {"queue": epoch, "row_version": row_version, "purged": None, **more}}


def drain(number: int, owner: str = "o") -> dict:
    return {AUDIT: {"queue": AUDIT, "owner": owner, "number": number}}


def batch(number: int, start: dict, end: dict, query: str = QUERY) -> StreamBatch:
    return StreamBatch("archive", query, number, start, end, {AUDIT: "audit", ERROR: "error"}, WAY_OUT)


def after(*batches: StreamBatch) -> dict[str, Recorded]:
    records: dict[str, Recorded] = {}
    for each in batches:
        records = recorded_after(each, records)
    return records


WRITTEN = after(batch(0, {}, tail(10)), batch(1, tail(10), tail(20)))


@pytest.mark.parametrize(
    ("repeated", "records", "last"),
    [
        (batch(1, tail(10), tail(20)), WRITTEN, 1),
        (batch(1, tail(10), tail(20, polls=[[25, [7]]])), WRITTEN, 1),
        (
            batch(0, tail(10), tail(10)),
            after(batch(0, {}, tail(10))),
            0,
        ),  # the first batch starts where the table ends, for its start is in no checkpoint
        (batch(4, drain(3), drain(9)), after(batch(4, drain(3), drain(9))), 4),
    ],
)
def test_the_last_batch_of_the_table_is_skipped_when_it_comes_again(repeated, records, last):
    assert not is_new(repeated, records, last)


@pytest.mark.parametrize(
    ("following", "records", "last"),
    [
        (batch(0, {}, tail(10)), {}, -1),
        (batch(2, tail(20), tail(30)), WRITTEN, 1),
        (batch(5, tail(20), tail(30)), WRITTEN, 1),  # batches without messages are not in the table
        (batch(0, tail(20), tail(30), OTHER), WRITTEN, -1),  # a new checkpoint that begins where the table ends
        (
            batch(2, tail(20) | tail(5, ERROR), tail(30) | tail(5, ERROR)),
            WRITTEN | after(batch(9, {}, tail(8, ERROR), OTHER)),
            1,
        ),  # error has not moved
        (batch(0, {}, tail(10, "db/audit#77"), OTHER), WRITTEN, -1),  # the queue was dropped and created again
    ],
)
def test_a_batch_that_starts_where_the_table_ends_is_written(following, records, last):
    assert is_new(following, records, last)


@pytest.mark.parametrize(
    ("wrong", "records", "last"),
    [
        (batch(1, tail(10), tail(15)), WRITTEN, 1),  # an older checkpoint has planned the batch again
        (batch(1, tail(5), tail(20)), WRITTEN, 1),
        (batch(0, {}, tail(10)), WRITTEN, 1),
        (batch(2, tail(15), tail(30)), WRITTEN, 1),
        (batch(3, tail(25), tail(30)), WRITTEN, 1),  # the table was restored
        (batch(2, tail(20), tail(19)), WRITTEN, 1),
        (batch(0, {}, tail(30), OTHER), WRITTEN, -1),  # a second query
        (batch(1, drain(3), drain(9)), after(batch(0, {}, drain(3, "another owner"))), 0),
        (batch(0, {}, drain(3), OTHER), WRITTEN, -1),  # tail, then drain
        (
            batch(2, tail(20) | tail(5, ERROR), tail(30) | tail(6, ERROR)),
            WRITTEN | after(batch(9, {}, tail(8, ERROR), OTHER)),
            1,
        ),
        (batch(3, {}, {}), {}, 5),  # without offsets: the number alone
    ],
)
def test_any_other_batch_is_refused_with_the_way_out(wrong, records, last):
    with pytest.raises(SparkFailed, match=WAY_OUT):
        is_new(wrong, records, last)


def refusal(stored: CheckpointProgress, records: dict[str, Recorded], last: int) -> str:
    """Start a query that reads audit. Returns why it is refused, or an empty text."""
    try:
        check_start(stored, records, last, "archive", ("audit",), WAY_OUT)
    except SparkFailed as error:
        return str(error)
    return ""


def progress(committed: int, planned: int, *ends: dict, query: str | None = QUERY) -> CheckpointProgress:
    stored = dict(enumerate(ends))
    return CheckpointProgress("/c", query, planned, committed, stored.get)


@pytest.mark.parametrize(
    ("stored", "records", "last"),
    [
        (progress(-1, -1, query=None), WRITTEN, -1),  # a new checkpoint
        (progress(1, 1, tail(10), tail(20)), WRITTEN, 1),
        (progress(0, 1, tail(10), tail(20)), WRITTEN, 1),  # killed between the table's commit and Spark's
        (progress(1, 2, tail(10), tail(20), tail(30)), WRITTEN, 1),  # killed before the table's commit
        (progress(-1, 0, tail(10)), {}, -1),
        (progress(-1, 0, tail(30), query=OTHER), WRITTEN, -1),  # a new checkpoint was killed in its first batch
        (
            progress(2, 2, tail(10), tail(20), tail(20, polls=[[25, [7]]])),
            WRITTEN,
            1,
        ),  # an empty batch that only keeps polls
        (
            progress(1, 1, tail(10) | tail(3, ERROR), tail(20) | tail(3, ERROR)),
            WRITTEN | after(batch(0, {}, tail(8, ERROR), OTHER)),
            1,
        ),  # not subscribed
    ],
)
def test_a_checkpoint_that_belongs_to_its_table_may_start(stored, records, last):
    assert refusal(stored, records, last) == ""


@pytest.mark.parametrize(
    ("stored", "records", "last", "says"),
    [
        (progress(0, 0, tail(10)), WRITTEN, 1, "older than the archive"),
        (progress(-1, -1), WRITTEN, 1, "offsets were deleted"),
        (progress(2, 2, tail(10), tail(20), tail(30)), WRITTEN, 1, "1 batch that"),
        (progress(3, 4, tail(10), tail(20), tail(30), tail(40), tail(50)), WRITTEN, 1, "2 batches"),
        (progress(1, 1, tail(10), tail(20)), {}, -1, "2 batches"),  # the table was deleted
        (
            progress(0, 0, tail(10), query=OTHER),
            WRITTEN | after(batch(1, tail(10), tail(20))),
            0,
            "row version 10 of audit.*row version 20",
        ),
        (progress(0, 1, tail(10), tail(25), query=OTHER), WRITTEN, 0, "row version 10 of audit.*row version 20"),
        (progress(-1, 0, tail(15), query=OTHER), WRITTEN, -1, "no offset of audit.*row version 20"),
        (progress(0, 0, drain(3)), after(batch(0, {}, drain(3, "another owner"))), 0, "number 3 of the spool"),
    ],
)
def test_a_checkpoint_that_does_not_is_refused_before_anything_is_read(stored, records, last, says):
    assert re.search(f"{says}.*Nothing was read or deleted.*{WAY_OUT}", refusal(stored, records, last))


def test_the_last_commit_of_an_earlier_version_is_the_start_although_it_has_no_offsets(tmp_path):
    table = create_table(str(tmp_path))
    assert table.commit(batches={QUERY: 1}, recorded={}, note={"job": "archive"})

    records, last = table.recorded(), table.last_batch(QUERY)

    assert refusal(progress(1, 1, tail(10), tail(20)), records, last) == ""
    assert refusal(progress(3, 3, *map(tail, (10, 20, 30, 40))), records, last) == ""  # batches without messages
    assert not is_new(batch(1, tail(10), tail(20)), records, last)
    assert is_new(batch(2, tail(20), tail(30)), records, last)


def test_a_new_checkpoint_of_a_queue_whose_offset_is_not_known_is_refused():
    new, running = progress(-1, -1, query=None), progress(0, 0, tail(10))
    check_known(running, {}, {"audit"}, "archive")
    check_known(new, WRITTEN, {"audit"}, "archive")

    with pytest.raises(
        SparkFailed, match=r"has messages of audit, but not the offset.*The new checkpoint /c would archive them again"
    ):
        check_known(new, {}, {"audit"}, "archive")


def test_what_the_table_confirms_outlives_commits_of_other_jobs_and_programs_and_old_entries_of_the_log(tmp_path):
    table = create_table(str(tmp_path))
    assert table.commit(batches={QUERY: 1}, recorded=WRITTEN, note={"job": "archive"})
    assert table.commit(note={"job": "compact"})
    DeltaTable(str(tmp_path)).alter.add_columns([Field("team", "string")])
    DeltaTable(str(tmp_path)).create_checkpoint()
    for version in range(2):
        (tmp_path / "_delta_log" / f"{version:020}.json").unlink()

    again = open_table(str(tmp_path))

    assert dict(again.recorded()) == WRITTEN == dict(table.recorded())
    assert again.last_batch(QUERY) == 1


def test_a_commit_whose_snapshot_is_old_changes_nothing_that_another_query_has_confirmed(tmp_path):
    one, other = (create_table(str(tmp_path)) for _ in range(2))
    assert one.commit(batches={QUERY: 1}, recorded=WRITTEN, note={"job": "archive"})

    assert not other.commit(batches={OTHER: 0}, recorded=after(batch(0, {}, tail(30), OTHER)), note={"job": "archive"})
    other.refresh()

    assert dict(other.recorded()) == WRITTEN
    with pytest.raises(SparkFailed, match=r"ends at row version 20 of audit, and this batch starts at no offset\."):
        is_new(batch(0, {}, tail(30), OTHER), other.recorded(), other.last_batch(OTHER))


def test_offsets_of_other_sources_are_not_compared():
    assert by_epoch(None) == by_epoch({"topic": {"0": 17}}) == {}
    assert by_epoch({"queues": {"audit": tail(1)[AUDIT], "error": tail(2, ERROR)[ERROR]}}) == tail(1) | tail(2, ERROR)


def test_the_default_checkpoint_does_not_depend_on_the_order_of_the_queues(tmp_path):
    place = located(str(tmp_path))

    assert default_checkpoint(place, "audit,error", "tail") == default_checkpoint(place, "error,audit,error", "tail")
    assert default_checkpoint(place, "audit", "tail") == f"{place}/_rowpost/checkpoints/audit-tail"


def test_the_guard_imports_no_pyspark():
    """An archiver without Spark uses it too."""
    imported = {
        node.module for node in ast.walk(ast.parse(inspect.getsource(identity))) if isinstance(node, ast.ImportFrom)
    }

    assert imported == {"__future__", "collections.abc", "dataclasses", "typing", "rowpost.errors"}
