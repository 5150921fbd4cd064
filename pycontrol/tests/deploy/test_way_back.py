"""plan --sql --to: the way back to a saved release as a script, which leaves what apply --to leaves."""

import re
from dataclasses import replace

import pytest

from rowpost.deploy import apply as deploy
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.release import go_back, open_release, undo_scripts, way_back_script, write_release_archive
from rowpost.deploy.state import read_state
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError
from rowpost.settings.environment import QueueSettings, Settings
from tests.support.by_hand import run_by_hand

PEEK = "procedures/queue/peek_queue.sql"
LATER = "procedures/queue/_later_peek_queue.sql"


@pytest.fixture
def saved(shop, tmp_path, folder, scripts, edit):
    """This release, saved. `folder` has a later one: a changed procedure, a new one of each queue, a new column."""
    write_release_archive(tmp_path / "old.zip")
    text = (scripts / PEEK).read_text(encoding="utf-8")
    (scripts / LATER).write_text(text.replace("peek_queue", "_later_peek_queue"), encoding="utf-8")
    edit(PEEK, "/*\n", "/*\nBetter.\n")
    go = shop.spelt("", "GO\n")
    column = shop.spelt("text NULL;\n", "nvarchar(50) NULL;\n")
    (scripts / "tables" / "050_note.sql").write_text(f"ALTER TABLE rowpost.failure ADD note {column}{go}")
    (scripts / "tables" / "undo" / "050_note.sql").write_text(
        f"ALTER TABLE rowpost.failure DROP COLUMN note;\n{go}DELETE FROM rowpost.version WHERE schema_version >= 50;\n{go}"
    )
    return tmp_path / "old.zip"


def spell(shop, database, release, folder, **options):
    now, earlier = (deploy.adapted(database, shop.plan(folder=each)) for each in (folder, release.folder))
    return way_back_script(now, earlier, release.version, folder=folder, **options)


def left_in(database):
    state = read_state(database)
    journal = {(each.script_name, each.script_hash, each.living_fingerprint) for each in state.journal}
    return journal, state.registry, state.schema_version, state.tool_version


@pytest.mark.parametrize("tables", [False, True])
def test_the_script_leaves_what_apply_to_leaves_and_may_run_again(
    shop, database, psql, tmp_path, saved, folder, new_database, tables
):
    twin = replace(shop, settings=replace(shop.settings, url=new_database(shop.spelt(shop.label, "sqlserver"))))
    with open_release(saved) as release, twin.connect() as other:
        for each in (database, other):
            apply(each, shop.plan())
            apply(each, shop.plan(folder=folder))
        go_back(other, release, undo=undo_scripts(other, release, folder) if tables else None)
        script = spell(shop, database, release, folder, tables=tables)
        ran = [run_by_hand(shop, database, psql, script, tmp_path) for _ in range(2)]
        expected, found = left_in(other), left_in(database)

    assert ran[0].returncode == 0, ran[0].stderr
    assert found == expected
    assert (ran[1].returncode == 0) is not tables
    assert not tables or "does not have schema 50" in ran[1].stderr
    assert [finding.kind for finding in verify(database, shop.plan())] == ([] if tables else ["schema_newer"])


def test_a_database_that_was_never_upgraded_is_refused(shop, database, psql, tmp_path, saved, folder):
    apply(database, shop.plan())
    before = left_in(database)

    with open_release(saved) as release:
        ran = run_by_hand(shop, database, psql, spell(shop, database, release, folder), tmp_path)

    assert ran.returncode != 0
    assert "does not have schema 50" in ran.stderr
    assert left_in(database) == before


def test_queues_that_the_environment_does_not_declare_keep_later_procedures_from_being_dropped(
    shop, database, psql, tmp_path, saved, folder
):
    apply(database, shop.plan(*map(QueueSettings, ("Sales", "Billing", "Made otherwise")), folder=folder))
    before = left_in(database)

    with open_release(saved) as release:
        ran = run_by_hand(shop, database, psql, spell(shop, database, release, folder, tables=True), tmp_path)

    assert ran.returncode != 0
    assert "run rowpost apply --to" in ran.stderr
    assert left_in(database) == before


def test_the_way_to_a_newer_release_is_no_way_back(shop, tmp_path, folder, scripts):
    (scripts / "tables" / "099_later.sql").write_text("SELECT 1;\n")

    with pytest.raises(DeployError, match="forward"):
        way_back_script(shop.plan(), shop.plan(folder=folder), "1.4")


@pytest.mark.parametrize("engine", ["postgresql", "sqlserver"])
def test_the_script_has_procedures_and_rights_and_no_tables(tmp_path, engine):
    planned = plan(Settings(engine=engine, queues=(QueueSettings("Sales"),)))

    script = way_back_script(planned, planned, "1.4")

    titles = re.findall(r"^-- =+\n-- (\S+?)( .*)?\n-- =+$", script, re.MULTILINE)
    ran = [name for name, _ in titles if ".sql" in name]
    wanted = [step.script_name for step in planned.steps if step.object_kind == "procedure" or step.kind == "everytime"]
    assert ran == ["begin.sql", *wanted, "commit.sql"]
    assert "The way back to rowpost 1.4" in script
