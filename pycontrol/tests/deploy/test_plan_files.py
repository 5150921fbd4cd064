"""plan --sql --by-queue: files that are run one after the other, and that together do what the whole script does."""

import hashlib
import json
import re
from itertools import chain

import pytest

from rowpost.deploy import apply as deploy
from rowpost.deploy.apply import difference
from rowpost.deploy.plan import plan
from rowpost.deploy.plan_files import plan_files, write_plan_files
from rowpost.deploy.sql_text import code_only, split_batches
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError
from rowpost.settings.environment import QueueSettings, SagaSettings, Settings
from tests.support.by_hand import run_by_hand

URLS = {
    "postgresql": "postgresql://app:hunter2@127.0.0.1:1/shop",
    "sqlserver": "Server=127.0.0.1,1;Database=shop;PWD=hunter2",
}
every_engine = pytest.mark.parametrize("engine", sorted(URLS))


def offline(engine):
    queues = (QueueSettings("Sales"), QueueSettings("it's ]\"odd/../x", delayed=False))
    return plan(Settings(engine=engine, url=URLS[engine], queues=queues, sagas=(SagaSettings("Policy", "order_id"),)))


@every_engine
def test_each_script_of_the_plan_is_in_one_file_with_its_record(engine):
    planned = offline(engine)

    files = plan_files(planned)

    recorded = [re.findall(r"record_script.*script_hash (?:=>|=) N?'(\w+)'", each.text) for each in files]
    assert sorted(chain(*recorded)) == sorted(step.hash for step in planned.steps)
    assert [each.purpose for each in files] == [
        "shared objects", "queue Sales", "queue it's ]\"odd/../x", "saga Policy",
    ]  # fmt: skip
    assert [each.text.count("record_version ") + each.text.count("record_version(") for each in files[1:]] == [0] * 3
    assert "hunter2" not in "".join(each.text for each in files)


@every_engine
def test_the_manifest_names_the_files_in_their_order_with_their_hashes_and_that_of_the_plan(engine, tmp_path):
    planned = offline(engine)

    write_plan_files(planned, tmp_path / "new" / "files")

    (manifest,) = (json.loads(each.read_text()) for each in (tmp_path / "new" / "files").glob("*.json"))
    assert (manifest["plan"], manifest["database"]) == (planned.hash, "shop")
    assert [each["file"] for each in manifest["files"]] == sorted(
        path.name for path in (tmp_path / "new" / "files").glob("*.sql")
    )
    assert [each["file"] for each in manifest["files"]][::3] == ["001-shared-objects.sql", "004-saga-Policy.sql"]
    for each in manifest["files"]:
        text = (tmp_path / "new" / "files" / each["file"]).read_bytes()
        assert hashlib.sha256(text).hexdigest() == each["sha256"]
        assert planned.hash.encode() in text


def test_a_folder_that_holds_files_of_another_plan_is_refused(tmp_path):
    write_plan_files(offline("postgresql"), tmp_path / "files")

    with pytest.raises(DeployError, match="not empty"):
        write_plan_files(offline("postgresql"), tmp_path / "files")


def test_every_batch_of_each_t_sql_file_is_guarded_and_waits_for_no_lock_for_ever():
    for each in plan_files(offline("sqlserver")):
        batches = [code_only(batch.text).strip() for batch in split_batches(each.text, "sqlserver")]
        commit = batches.index("COMMIT TRANSACTION;")
        guarded = {place - 1 for place, batch in enumerate(batches) if batch.endswith("SET NOEXEC ON;")}

        unguarded = [
            batch for place, batch in enumerate(batches[:commit]) if place not in guarded and place - 1 not in guarded
        ]

        assert all(re.fullmatch(r"(SET ([A-Z_, ]+ ON|LOCK_TIMEOUT 30000);\s*)+", batch) for batch in unguarded), (
            unguarded
        )
        assert batches[commit + 1 :] == ["SET NOEXEC OFF;", "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;"]
        assert "SET LOCK_TIMEOUT 30000;" in batches[: commit - 1]


def test_the_files_run_one_after_the_other_leave_nothing_to_do_also_after_an_interruption(
    shop, database, psql, tmp_path
):
    wanted = deploy.adapted(database, plan(shop.settings))
    shared, *queues = plan_files(wanted)

    early = run_by_hand(shop, database, psql, queues[0].text, tmp_path)
    first = [run_by_hand(shop, database, psql, each.text, tmp_path) for each in (shared, queues[0])]
    between = difference(database, plan(shop.settings))
    again = [run_by_hand(shop, database, psql, each.text, tmp_path) for each in (shared, *queues)]

    assert early.returncode != 0
    assert "Run 001-shared-objects.sql first" in early.stderr
    assert [each.returncode for each in (*first, *again)] == [0] * (2 + len(again)), [each.stderr for each in again]
    assert {name.partition(".sql:")[2] or name for name in between.names("added")} == {"queue Billing", "Billing"}
    assert difference(database, plan(shop.settings)).is_empty
    assert verify(database, plan(shop.settings)) == []


def test_a_file_of_an_older_plan_is_refused_by_a_database_of_a_newer_release(shop, database, psql, tmp_path):
    wanted = deploy.adapted(database, plan(shop.settings))
    files = plan_files(wanted)
    run_by_hand(shop, database, psql, files[0].text, tmp_path)
    database.call("record_version", schema_version=99, tool_version="9.9")

    ran = [run_by_hand(shop, database, psql, each.text, tmp_path) for each in files[:2]]

    assert [each.returncode == 0 for each in ran] == [False, False]
    assert "newer rowpost" in ran[1].stderr
    assert database.call("list_queues") == []
