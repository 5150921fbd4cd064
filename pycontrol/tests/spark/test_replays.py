"""What an archive's folder stores of replays, and the commands that list and cancel them. They need no Spark session."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rowpost.archive.folder import ArchiveFolder
from rowpost.cli.app import app
from rowpost.errors import SparkFailed
from rowpost.spark.archive.replays import ReplayStore, list_replays

OK, USAGE, NOT_FOUND, FAILED = 0, 2, 6, 7
ASKED = {"where": "row_version <= 5", "limit": None, "queue": "Sales", "rate": None, "ramp": [1], "max_depth": None}


@pytest.fixture
def archive(tmp_path):
    """An archive with replays: of a killed command, one that has sent 1 of 3 messages, and one that has sent all."""
    folder = ArchiveFolder(str(tmp_path))
    stored(folder, "killed")
    for key, sent in (("half", 1), ("whole", 3)):
        store, attempt = ReplayStore(folder, key), stored(folder, key)
        stored(folder, key)  # a killed attempt before
        store.create_plan(
            {"asked": ASKED, "attempt": attempt, "messages": 3, "queues": {"Sales": "Sales"}, "steps": [[], []]}
        )
        store.note_sent({"steps": sent, "messages": sent})
    return folder


def stored(folder, key):
    store = ReplayStore(folder, key)
    attempt = store.new_attempt()
    rows = Path(store.rows(attempt)) / "step=0"
    rows.mkdir(parents=True)
    (rows / "part.parquet").write_bytes(b"")
    return attempt


def rowpost(*arguments):
    ended = CliRunner().invoke(app, ["spark", "replays", *map(str, arguments)])
    return ended.exit_code, ended.stdout, ended.stderr


def attempts(folder, key):
    return [path for path in folder.replays() if f"/{key}/" in path]


def test_replays_are_listed_with_their_state_and_what_they_sent(archive):
    code, said, _ = rowpost("list", archive.path)
    listed = json.loads(rowpost("list", archive.path, "--json")[1])

    assert [(each["key"], each["state"], each["messages"], each["sent"]) for each in listed] == [
        ("half", "sending", 3, 1), ("killed", "choosing", None, 0), ("whole", "done", 3, 3),
    ]  # fmt: skip
    assert (code, listed[0]["queue"], listed[0]["where"]) == (OK, "Sales", "row_version <= 5")
    assert "half" in said and "sending" in said


def test_an_archive_without_replays_says_so(tmp_path):
    assert rowpost("list", tmp_path)[:2] == (OK, "There are no replays.\n")


def test_a_cancelled_replay_keeps_its_key_and_loses_what_it_stored(archive):
    code, said, _ = rowpost("cancel", archive.path, "half", "--yes")

    assert (code, attempts(archive, "half")) == (OK, [])
    assert "stay in their queues" in said
    assert {each.key: each.state for each in list_replays(archive)}["half"] == "cancelled"
    with pytest.raises(SparkFailed, match="was cancelled"):
        ReplayStore(archive, "half").check_not_cancelled()


def test_the_key_of_a_replay_that_was_killed_before_its_plan_is_free_after_it_was_cancelled(archive):
    code, said, _ = rowpost("cancel", archive.path, "killed", "--yes")

    assert (code, attempts(archive, "killed")) == (OK, [])
    assert "can be used again" in said
    assert [each.key for each in list_replays(archive)] == ["half", "whole"]


@pytest.mark.parametrize(("key", "expected"), [("whole", FAILED), ("nobody", NOT_FOUND)])
def test_a_replay_that_is_done_and_one_that_is_not_there_cannot_be_cancelled(archive, key, expected):
    code, _, said = rowpost("cancel", archive.path, key, "--yes")

    assert code == expected and f"'{key}'" in said


def test_without_a_terminal_a_replay_is_cancelled_only_with_yes(archive):
    code, _, said = rowpost("cancel", archive.path, "half")

    assert code == USAGE and "1 of 3 messages" in said and "--yes" in said
    assert attempts(archive, "half") != []


def test_only_the_first_plan_of_a_key_counts(archive):
    store, other = ReplayStore(archive, "half"), stored(archive, "half")
    before = store.plan()

    store.create_plan({**before, "attempt": other})
    store.discard(other)

    assert store.plan() == before
    assert any(before["attempt"] in path for path in attempts(archive, "half"))


def test_a_replay_that_is_cancelled_while_it_chooses_its_messages_stores_no_plan(archive):
    store, attempt = ReplayStore(archive, "late"), stored(archive, "late")
    store.cancel()

    with pytest.raises(SparkFailed, match="can be used again"):
        store.create_plan({"asked": ASKED, "attempt": attempt, "messages": 3, "queues": {}, "steps": []})

    assert store.find() is None


def test_an_error_of_a_step_whose_messages_were_deleted_says_that_the_replay_was_cancelled(archive):
    store = ReplayStore(archive, "half")

    with pytest.raises(SparkFailed, match="was cancelled"), store.unless_cancelled():
        store.cancel()
        Path(store.rows(store.plan()["attempt"])).iterdir().__next__()
