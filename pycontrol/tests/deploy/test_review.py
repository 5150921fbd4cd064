"""What a reviewer sees: counts, locks, hashes, differences; and the way back to a saved release."""

import re
import zipfile

import pytest

from rowpost.database import contract
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.queues import create_queue
from rowpost.deploy.release import go_back, open_release, undo_scripts, write_release_archive
from rowpost.deploy.review import Item, Review, compare_releases, read_definition, review
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError, SchemaMissing
from rowpost.transport.queue import Queue

PEEK = "procedures/queue/peek_queue.sql"


def reviewed(database, plan):
    return review(difference(database, plan), database.engine, read_definition(database))


def test_an_empty_database_is_all_added_and_locks_nothing_that_is_in_use(shop, database):
    found = reviewed(database, shop.plan())

    assert set(found.counts) == {"added"}
    assert (found.locks, found.pauses) == ((), False)
    assert all(item.old_hash is None and len(item.new_hash or "x" * 64) == 64 for item in found.items)


def test_a_deployed_database_has_nothing_to_review(shop, database):
    apply(database, shop.plan())

    assert reviewed(database, shop.plan()).summary == ["Nothing changes."]


def test_a_changed_procedure_is_shown_with_both_hashes_and_the_one_line_that_differs(shop, database, folder, edit):
    apply(database, shop.plan())
    edit(PEEK, "/*\n", "/*\nBetter.\n")

    found = reviewed(database, shop.plan(folder=folder))

    item = next(item for item in found.items if item.name == f"{PEEK}:Sales")
    changed = [line for line in item.diff.splitlines() if re.match(r"[+-](?![+-])", line)]
    assert changed == ["+Better."]
    assert item.old_hash != item.new_hash
    assert found.counts == {"changed": 2}
    assert found.pauses == (shop.engine == "sqlserver")
    assert len(found.locks) == 1


def test_a_procedure_changed_by_hand_is_shown_as_it_lives(shop, database, change_by_hand):
    apply(database, shop.plan())
    change_by_hand(f"{PEEK}:Sales")

    (item,) = reviewed(database, shop.plan()).items

    changed = [line for line in item.diff.splitlines() if re.match(r"[+-](?![+-])", line)]
    assert (item.state, changed) == ("drifted", ["-Changed by hand."])


def test_two_releases_are_compared_without_a_connection(shop, tmp_path, folder, edit):
    write_release_archive(tmp_path / "old.zip")
    edit(PEEK, "/*\n", "/*\nBetter.\n")

    with open_release(tmp_path / "old.zip") as old:
        found = compare_releases(shop.plan(folder=old.folder), shop.plan(folder=folder))

    if not shop.babelfish:  # the offline plan is SQL Server's
        assert [(item.name, item.state) for item in found.items] == [
            (f"{PEEK}:Sales", "changed"),
            (f"{PEEK}:Billing", "changed"),
        ]
        assert "+Better." in found.items[0].diff.splitlines()


def test_the_same_scripts_make_the_same_bundle(tmp_path):
    first, second = tmp_path / "1.zip", tmp_path / "2.zip"

    write_release_archive(first)
    write_release_archive(second)

    assert first.read_bytes() == second.read_bytes()


def test_a_saved_release_is_rendered_by_its_own_contract_whatever_the_current_one_says(
    shop, tmp_path, folder, monkeypatch
):
    write_release_archive(tmp_path / "old.zip")
    with open_release(tmp_path / "old.zip") as release:
        before = shop.plan(folder=release.folder)
        text = (folder / "contract.yml").read_text(encoding="utf-8")
        text = text.replace("receive: [endpoint, operator]", "receive: [reader]").replace(
            "queue/peek_queue:", "queue/look:"
        )
        text = text.replace("deploy/record_script:", "deploy/note_script:")
        (folder / "contract.yml").write_text(text, encoding="utf-8")
        monkeypatch.setattr(contract, "_load", lambda: contract.read_contract(folder))

        after = shop.plan(folder=release.folder)

    assert contract.load_contract().find("look", "queue").roles == ("operator", "reader", "body_reader")
    assert after.script == before.script
    assert after.hash == before.hash


def test_going_back_brings_the_saved_procedures_for_every_queue_and_keeps_tables_and_messages(
    shop, database, tmp_path, folder, edit, sql
):
    apply(database, shop.plan())
    write_release_archive(tmp_path / "old.zip")
    edit(PEEK, "/*\n", "/*\nBetter.\n")
    apply(database, shop.plan(folder=folder))
    create_queue(database, "Made since")
    Queue("Sales", database).send(b"kept")

    with open_release(tmp_path / "old.zip") as release:
        first = go_back(database, release)
        second = go_back(database, release)

    assert set(first.applied) == {f"{PEEK}:Sales", f"{PEEK}:Billing"}
    assert second.applied == ()
    assert verify(database, shop.plan()) == []
    assert Queue("Sales", database).receive()[0].body == b"kept"


def test_procedures_that_only_a_later_release_has_are_dropped_with_its_tables(
    shop, database, tmp_path, folder, scripts
):
    write_release_archive(tmp_path / "old.zip")
    later = {}  # a template, and on SQL Server also a function
    for name in ("queue/peek_queue", "deploy/_object_fingerprint"):
        text = (scripts / "procedures" / f"{name}.sql").read_text(encoding="utf-8")
        stem = name.rpartition("/")[2]
        later[f"procedures/queue/_later{stem}.sql"] = text.replace(stem, f"_later{stem}")
    for name, text in later.items():
        (scripts / name).write_text(text, encoding="utf-8")
    apply(database, shop.plan(folder=folder))

    with open_release(tmp_path / "old.zip") as release:
        kept = go_back(database, release)
        found = {finding.kind for finding in verify(database, shop.plan())}
        gone = go_back(database, release, undo=())

    template, function = later
    assert (kept.dropped, found) == ((), {"script_missing"})
    assert set(gone.dropped) == {f"{template}:Sales", f"{template}:Billing", function}
    assert verify(database, shop.plan()) == []


@pytest.fixture
def later_table(shop, database, tmp_path, scripts, folder):
    """The shop deployed by a later release, which has altered a table of rowpost's own; the release before is saved."""
    write_release_archive(tmp_path / "old.zip")
    text = "ALTER TABLE rowpost.failure ADD note " + shop.spelt("text NULL;\n", "nvarchar(50) NULL;\nGO\n")
    (scripts / "tables" / "050_note.sql").write_text(text)
    apply(database, shop.plan())
    apply(database, shop.plan(folder=folder))
    return tmp_path / "old.zip"


def test_a_later_table_script_is_taken_back_by_its_undo_when_somebody_asks_for_it(
    shop, database, later_table, scripts, folder
):
    (scripts / "tables" / "undo").mkdir(exist_ok=True)
    undo = "ALTER TABLE rowpost.failure DROP COLUMN note;\n{go}DELETE FROM rowpost.version WHERE schema_version >= 50;\n{go}"
    (scripts / "tables" / "undo" / "050_note.sql").write_text(undo.format(go=shop.spelt("", "GO\n")))

    with open_release(later_table) as release:
        go_back(database, release)
        found = [finding.kind for finding in verify(database, shop.plan(folder=folder))]
        go_back(database, release, undo=undo_scripts(database, release, folder))

    assert found == []
    assert verify(database, shop.plan()) == []
    assert database.call("get_version")[0][0] == shop.plan().schema_version


def test_a_later_table_script_without_an_undo_is_named(database, later_table, folder):
    with open_release(later_table) as release, pytest.raises(DeployError, match=r"tables/050_note\.sql"):
        undo_scripts(database, release, folder)


def test_an_undo_that_fails_leaves_the_later_release_as_it_was(shop, database, later_table, scripts, folder):
    (scripts / "tables" / "undo").mkdir(exist_ok=True)
    (scripts / "tables" / "undo" / "050_note.sql").write_text(
        "ALTER TABLE rowpost.failure DROP COLUMN no_such_column;\n"
    )

    with open_release(later_table) as release, pytest.raises(DeployError, match=r"tables/undo/050_note\.sql"):
        go_back(database, release, undo=undo_scripts(database, release, folder))

    assert verify(database, shop.plan(folder=folder)) == []


def test_going_back_to_a_newer_schema_is_refused_and_changes_nothing(shop, database, tmp_path, folder, scripts):
    apply(database, shop.plan())
    (scripts / "tables" / "099_later.sql").write_text("SELECT 1;\n")
    write_release_archive(tmp_path / "newer.zip", folder)

    with open_release(tmp_path / "newer.zip") as release, pytest.raises(DeployError, match="forward"):
        go_back(database, release)

    assert verify(database, shop.plan()) == []


def test_there_is_nothing_to_go_back_to_in_an_empty_database(shop, database, tmp_path):
    write_release_archive(tmp_path / "old.zip")

    with open_release(tmp_path / "old.zip") as release, pytest.raises(SchemaMissing):
        go_back(database, release)


@pytest.mark.parametrize("content", [b"", b"PK no zip", None])
def test_a_file_that_is_no_bundle_is_refused_by_name(tmp_path, content):
    path = tmp_path / "what.zip"
    if content is None:
        with zipfile.ZipFile(path, "w") as empty:
            empty.writestr("readme.txt", "nothing")
    else:
        path.write_bytes(content)

    with pytest.raises(DeployError, match=r"what\.zip"), open_release(path):
        pass


def test_a_bundle_that_reaches_outside_is_refused(tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as evil:
        evil.writestr("../outside.sql", "DROP TABLE x;")

    with pytest.raises(DeployError, match="outside"), open_release(path):
        pass

    assert not (tmp_path / "outside.sql").exists()


def test_a_review_counts_what_is_not_part_of_the_release_apart_from_what_changes():
    unknown = Review((Item("a", "unknown", "1", None), Item("b", "unknown", "2", None)), (), False)

    assert unknown.summary == ["Nothing changes. Not part of this release, and left as they are: 2."]
