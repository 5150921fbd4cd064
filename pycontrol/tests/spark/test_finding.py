"""Finding one conversation or message in an archive: what the files hold for it, and what is read of them."""

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from rowpost.archive import clustering, parts
from rowpost.archive.clustering import merged
from rowpost.archive.finding import find
from rowpost.archive.parts import SEARCHED
from rowpost.archive.table import open_table
from rowpost.cli.app import app
from rowpost.cli.exits import ExitCode
from rowpost.errors import SparkFailed
from rowpost.spark.jobs import erase
from rowpost.spark.jobs.archive import read_archive
from rowpost.spark.jobs.reports import one_conversation
from tests.support.spark.archives import message_batch
from tests.support.spark.messages import audit_row
from tests.support.spark.row_groups import add_file, damage

MESSAGES, CONVERSATIONS, BATCH = 2000, 200, 50
LOST = "c-17"


@pytest.fixture
def small_row_groups(monkeypatch):
    """Row groups of about a hundred messages."""
    monkeypatch.setattr(parts, "BUFFER_BYTES", 100_000)
    monkeypatch.setattr(clustering, "BUFFER_BYTES", 100_000)


def batches(first: int = 0, conversations: int = CONVERSATIONS) -> list[pa.RecordBatch]:
    """Messages whose conversations take turns, in the order of arrival."""
    rows = [audit_row(f"m-{first + n}", ConversationId=f"c-{first + n % conversations}") for n in range(MESSAGES)]
    return [message_batch(rows[start : start + BATCH]) for start in range(0, MESSAGES, BATCH)]


def run(*arguments: object) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, [*map(str, arguments)])
    return ended.exit_code, ended.stdout, ended.stderr


# ---------------------------------------------------------------------------------------------- files
@pytest.mark.usefixtures("small_row_groups")
def test_each_row_group_has_bloom_filters_of_the_ids_and_the_log_has_no_id(tmp_path):
    table = add_file(tmp_path, batches())

    (file,) = table.files()
    footer = parquet.read_metadata(tmp_path / file.path)
    columns = [
        footer.row_group(group).column(number)
        for group in range(footer.num_row_groups)
        for number in range(footer.num_columns)
    ]
    filtered = {column.path_in_schema for column in columns if column.bloom_filter_length}
    assert footer.num_row_groups > 10 and filtered == set(SEARCHED)
    assert all(column.bloom_filter_length for column in columns if column.path_in_schema in SEARCHED)
    assert all(column.has_offset_index for column in columns)
    assert not any(column.has_column_index for column in columns if column.path_in_schema in ("headers", "body"))
    log = "".join(path.read_text() for path in (tmp_path / "_delta_log").glob("*.json"))
    assert "minValues" in log and not any(text in log for text in ("m-1", "c-1", "-0000-"))


def test_a_small_file_has_small_filters(tmp_path):
    (file,) = add_file(tmp_path, batches()[:1]).files()

    footer = parquet.read_metadata(tmp_path / file.path)

    assert footer.num_row_groups == 1
    assert {footer.row_group(0).column(n).bloom_filter_length for n in range(footer.num_columns)} - {None} <= set(
        range(64, 256)
    )


@pytest.mark.parametrize("most_runs", [64, 3])
def test_merging_sorts_by_conversation_and_row_version_and_keeps_every_row(small_row_groups, monkeypatch, most_runs):
    monkeypatch.setattr(clustering, "_BLOCK_BYTES", 8_000)
    monkeypatch.setattr(clustering, "_MOST_RUNS", most_runs)
    numbers = random.Random(4)
    sizes = [
        audit_row(
            f"m-{n}",
            body=b"x" * (100_000 if n == 700 else n % 50),
            ConversationId=numbers.choice((None, "c-all", f"c-{n}")),
        )
        for n in range(1000)
    ]
    given = [message_batch(sizes[start : start + 40]) for start in range(0, len(sizes), 40)]

    rows = pa.Table.from_batches(merged(given)).to_pylist()

    assert sorted(rows, key=lambda row: row["row_version"]) == pa.Table.from_batches(given).to_pylist()
    places = [(row["conversation_id"] is None, row["conversation_id"] or "", row["row_version"]) for row in rows]
    steps_back = sum(later < earlier for earlier, later in pairwise(places))
    assert steps_back == 0 if most_runs == 64 else 0 < steps_back < 10


def test_rows_that_are_not_messages_keep_their_order(small_row_groups):
    given = [pa.record_batch({"hour": [n, -n], "queue": ["a" * 60_000, "b"]}) for n in range(5)]

    assert pa.Table.from_batches(merged(given)) == pa.Table.from_batches(given)
    assert list(merged([])) == []


# ---------------------------------------------------------------------------------------------- searches
@dataclass(frozen=True)
class Damaged:
    """An archive of two files, in which only the row groups with the conversation LOST can be read."""

    path: Path
    first: Path
    content: bytes


@pytest.fixture
def damaged(small_row_groups, tmp_path) -> Damaged:
    """The first file is as a merge writes it, the other one is as the archiver writes it."""
    (only,) = add_file(tmp_path, merged(batches())).files()
    first = tmp_path / only.path
    content = first.read_bytes()
    table = add_file(tmp_path, batches(first=10_000), "other")
    groups = sum(parquet.read_metadata(tmp_path / file.path).num_row_groups for file in table.files())
    assert groups > 10 and damage(tmp_path, LOST) == groups - 1  # one row group has the whole conversation
    return Damaged(tmp_path, first, content)


def test_a_search_reads_only_the_row_group_that_has_the_conversation(damaged):
    table = open_table(str(damaged.path))

    found = find(table, LOST, 100)

    expected = [f"m-{n}" for n in range(17, MESSAGES, CONVERSATIONS)]
    assert [json.loads(each.headers)["NServiceBus.MessageId"] for each in found] == expected
    assert [(each.queue, each.body) for each in found] == [("audit", b"{}")] * len(expected)
    assert [each.row_version for each in find(table, found[3].id.upper(), 100)] == [found[3].row_version]
    assert [each.id for each in find(table, "m-17", 100)] == [found[0].id]
    assert len(find(table, LOST, 2)) == 2
    with pytest.raises(SparkFailed, match="verify"):
        table.query("SELECT id FROM archive WHERE related_to IS NULL")


def test_spark_reads_only_the_row_group_that_has_the_conversation_and_erase_does_not_open_other_files(spark, damaged):
    steps = one_conversation(read_archive(spark, str(damaged.path)), LOST)
    damaged.first.write_bytes(damaged.content)  # erase rewrites it

    receipt = erase.run(
        spark, str(damaged.path), erase.Erasure(where="message_id = 'm-17'"), "request 17", datetime.now(UTC)
    )

    assert (len(steps), receipt["erased"], receipt["files_rewritten"]) == (MESSAGES // CONVERSATIONS, 1, 1)


def test_find_prints_messages_with_their_headers_and_says_if_there_are_more(tmp_path):
    add_file(
        tmp_path, [message_batch(audit_row(f"m-{n}", ConversationId=LOST, body=f"body {n}".encode()) for n in range(3))]
    )

    code, shown, _ = run("spark", "find", tmp_path, LOST, "-n", 2)
    as_json = json.loads(run("--json", "spark", "find", tmp_path, "m-2")[1])
    missing, _, said = run("spark", "find", tmp_path, "it's not there")

    assert code == ExitCode.OK and "body 1" in shown and "body 2" not in shown and "audit, 2024-05-17" in shown
    assert json.loads(shown.splitlines()[-1]) == {"id": LOST, "messages": 2, "more": True}
    assert (as_json["messages"], as_json["more"], as_json["found"][0]["body"], as_json["found"][0]["queue"]) == (
        1,
        False,
        "body 2",
        "audit",
    )
    assert missing == ExitCode.NOT_FOUND and "it's not there" in said
