"""plan: offline, deterministic, complete; what a DBA runs by hand is what apply does."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from rowpost.deploy import apply as deploy
from rowpost.deploy.apply import apply, difference
from rowpost.deploy.by_hand import BATCH_GUARD
from rowpost.deploy.plan import plan
from rowpost.deploy.runner import BatchError
from rowpost.deploy.scripts import load_scripts
from rowpost.deploy.sql_text import code_only, split_batches
from rowpost.deploy.state import read_state
from rowpost.deploy.verify import verify
from rowpost.errors import InvalidQueueName, SchemaMissing, SchemaTooNew
from rowpost.settings.environment import QueueSettings, Settings
from tests.support.babelfish import HandRunner
from tests.support.by_hand import run_by_hand

NOWHERE = {
    "postgresql": Settings(engine="postgresql", url="postgresql://app:hunter2@127.0.0.1:1/shop"),
    "sqlserver": Settings(engine="sqlserver", url="Server=127.0.0.1,1;PWD=hunter2", default_schema="dbo"),
}
every_engine = pytest.mark.parametrize("engine", ["postgresql", "sqlserver"])
QUEUES = (QueueSettings("Sales"), QueueSettings("it's ]\"odd"), QueueSettings("Legacy.Orders@[nsb]", "external"))


def offline(engine, *queues):
    settings = NOWHERE[engine]
    return plan(
        Settings(engine=engine, url=settings.url, default_schema=settings.default_schema, queues=queues or QUEUES)
    )


@every_engine
def test_a_plan_is_the_same_in_every_process(engine):
    code = (
        "from rowpost.deploy.plan import plan; from rowpost.settings.environment import *; "
        f"print(plan(Settings(engine={engine!r}, queues=(QueueSettings('Sales'), QueueSettings('Billing')))).hash)"
    )

    hashes = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert len(hashes) == 1


@every_engine
def test_a_plan_needs_no_server_and_shows_no_secret(engine):
    script = offline(engine).script

    assert "hunter2" not in script
    assert "CREATE TABLE" in script


def test_a_script_that_is_run_by_hand_checks_its_database_before_it_waits_for_a_lock():
    script = "\n".join(line for line in offline("sqlserver").script.splitlines() if not line.startswith("--"))

    places = [
        script.index(text)
        for text in (
            "DB_ID() <= 4",
            "compatibility_level",
            "WITH NOWAIT",
            "BEGIN TRANSACTION",
            "SET LOCK_TIMEOUT 30000",
        )
    ]

    assert places == sorted(places)


@every_engine
def test_the_script_names_every_file_before_its_text_in_the_order_of_the_plan(engine):
    planned = offline(engine)

    banners = re.findall(r"^-- =+\n-- (.*)\n-- =+$", planned.script, re.MULTILINE)

    feature_of = planned.scripts.contract.feature_of
    items = [f"{step.script_name} ({step.kind}, for {feature_of(step.script_name)})" for step in planned.steps]
    assert [banner for banner in banners if banner in items] == items
    assert banners[0] == "begin.sql"
    assert banners[-4:] == [
        "the journal: what ran, and what it left behind", "the features that this environment declares", "the version", "commit.sql",
    ]  # fmt: skip
    assert "queue Sales (own)" in banners


@every_engine
def test_the_script_writes_every_step_into_the_journal(engine):
    planned = offline(engine)

    records = re.findall(
        r"record_script.*script_name (?:=>|=) N?'(.*?)', .*script_hash (?:=>|=) N?'(\w+)'", planned.script
    )

    assert records == [(step.script_name.replace("'", "''"), step.hash) for step in planned.steps]


@every_engine
def test_the_header_says_what_it_is_and_how_to_run_it(engine):
    planned = offline(engine)

    header = planned.script.partition("\n\n")[0]

    assert planned.hash in header
    assert f"Schema {planned.schema_version}," in header
    assert {"postgresql": "psql -v ON_ERROR_STOP=1 -f", "sqlserver": "sqlcmd"}[engine] in header


@every_engine
def test_an_external_queue_gets_no_table_and_the_procedures_that_send_and_that_operators_use(engine):
    names = [step.script_name for step in offline(engine, QUEUES[2]).steps if step.owner]

    assert sorted(name.partition(":")[0] for name in names) == [
        "procedures/queue/browse_messages.sql",
        "procedures/queue/read_bodies.sql",
        "procedures/queue/receive_message.sql",
        "procedures/queue/send_message.sql",
        "procedures/queue/send_messages.sql",
        "procedures/stream/send_staged.sql",
        "tables/queue/grants.sql",
        *(["tables/queue/roles.sql"] if engine == "postgresql" else []),
    ]


@pytest.mark.parametrize("kind", ["own", "adopted"])
def test_a_queue_in_another_database_can_only_be_external(kind):
    with pytest.raises(InvalidQueueName, match="external"):
        offline("sqlserver", QueueSettings("Sales@[dbo]@[other]", kind))


class GoesOn(HandRunner):
    """Runs batches as SQL Server Management Studio does: an error is shown, and the next batch runs."""

    def __init__(self, database):
        super().__init__(database)
        self.errors = []

    def run(self, batch, bare=True):
        try:
            super().run(batch, bare)
        except BatchError as error:
            self.errors.append(error)


def test_every_batch_of_the_t_sql_script_that_can_fail_is_guarded_and_no_script_undoes_the_guard():
    planned = offline("sqlserver")

    batches = [code_only(batch.text).strip() for batch in split_batches(planned.script, "sqlserver")]

    commit = batches.index("COMMIT TRANSACTION;")
    guards = [
        place
        for place, batch in enumerate(batches)
        if re.fullmatch(r"IF @@ERROR <> 0( OR @@TRANCOUNT = 0)? SET NOEXEC ON;", batch)
    ]
    unguarded = [
        batch for place, batch in enumerate(batches[:commit]) if place not in guards and place + 1 not in guards
    ]
    assert all(re.fullmatch(r"(SET ([A-Z_, ]+ ON|LOCK_TIMEOUT 30000);\s*)+", batch) for batch in unguarded), unguarded
    assert batches[commit + 1 :] == ["SET NOEXEC OFF;", "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;"]
    assert not any("NOEXEC" in step.text for step in planned.steps)


@pytest.mark.parametrize("mistake", ["SELECT 1 / 0;", "SELEC 1;"], ids=["execution", "compilation"])
def test_a_tool_that_goes_on_after_an_error_leaves_nothing_of_the_script(shop, database, mistake):
    if shop.engine != "sqlserver":
        pytest.skip("psql stops with ON_ERROR_STOP, and PostgreSQL refuses the rest of the transaction by itself")
    title = f"-- tables/queue/create.sql:Sales (anytime, for core)\n-- {'=' * 100}\n"
    script = deploy.adapted(database, shop.plan()).script
    assert script.count(title) == 1
    runner = GoesOn(database)

    for batch in split_batches(script.replace(title, f"{title}{mistake}\nGO\n{BATCH_GUARD}"), "sqlserver"):
        runner.run(batch)

    assert len(runner.errors) == 1
    assert not database.in_transaction
    with pytest.raises(SchemaMissing):
        read_state(database)


def test_the_script_run_by_hand_deploys_everything_and_may_run_again(shop, database, psql, tmp_path):
    wanted = deploy.adapted(database, shop.plan())

    for _ in range(2):
        ran = run_by_hand(shop, database, psql, wanted.script, tmp_path)

        assert ran.returncode == 0, ran.stderr
        assert verify(database, shop.plan()) == []
        assert difference(database, shop.plan()).is_empty


def test_the_script_run_by_hand_refuses_another_database_than_the_plan_was_made_for(shop, database, psql, tmp_path):
    made_for = "it's %s elsewhere"
    wanted = replace(deploy.adapted(database, shop.plan()), database=made_for)

    ran = run_by_hand(shop, database, psql, wanted.script, tmp_path)

    assert ran.returncode != 0
    assert "was made for the database it's %" in ran.stderr
    with pytest.raises(SchemaMissing):
        read_state(database)


@every_engine
@pytest.mark.parametrize(
    ("name", "known"), [("shop", True), ("", False), ("${SHOP_DATABASE}", False), ("a@b:c;d={", False)]
)
def test_the_script_checks_the_database_that_the_url_names_if_it_names_one(engine, name, known):
    url = {"postgresql": f"postgresql://app@db01:5432/{name}", "sqlserver": f"Server=sql01;Database={name}"}[engine]

    planned = plan(replace(NOWHERE[engine], url=url))

    assert planned.database == (name if known else "")
    assert ("was made for the database" in planned.script) is known
    assert planned.hash == plan(NOWHERE[engine]).hash


def test_psql_takes_names_that_mean_something_to_it(shop, database, psql, tmp_path):
    if shop.engine == "sqlserver":
        pytest.skip("psql's own: variables, commands and quotes")
    names = (":x", ":'x'", "\\echo no", "a\"b'c", "$(x)", "$rowpost_$", "a;b--c", "/*d", "%s{queue_key}")
    wanted = shop.plan(*map(QueueSettings, names))

    ran = run_by_hand(shop, database, psql, wanted.script, tmp_path)

    assert ran.returncode == 0, ran.stderr
    assert {row[0] for row in database.call("list_queues")} == set(names)
    assert verify(database, wanted) == []


def test_the_script_run_by_hand_refuses_a_newer_schema_and_changes_nothing(shop, database, psql, tmp_path):
    run_by_hand(shop, database, psql, deploy.adapted(database, shop.plan()).script, tmp_path)
    database.call("record_version", schema_version=99, tool_version="9.9")
    newer = deploy.adapted(database, shop.plan(QueueSettings("New")))

    ran = run_by_hand(shop, database, psql, newer.script, tmp_path)

    assert ran.returncode != 0
    assert "schema 99" in ran.stderr
    assert [row[0] for row in database.call("list_queues")] == ["Billing", "Sales"]


def test_a_connected_plan_tells_what_is_added_changed_and_no_longer_declared(shop, database, folder, edit):
    at_first = difference(database, shop.plan())
    apply(database, shop.plan())
    edit("procedures/queue/peek_queue.sql", "/*\n", "/*\nBetter.\n")

    diff = difference(database, shop.plan(QueueSettings("Sales"), QueueSettings("New"), folder=folder))

    assert len(at_first.names("added")) == len(shop.plan().items) - len(at_first.names("everytime"))
    assert diff.undeclared == ("Billing",)
    assert diff.names("changed") == ("procedures/queue/peek_queue.sql:Sales", "procedures/queue/peek_queue.sql:Billing")
    assert all(name.endswith("New") for name in diff.names("added"))
    procedures = [each for each in load_scripts(shop.engine).queue.procedures if "/lease/" not in each.name]
    assert len(diff.names("added")) == 3 + len(procedures)
    assert not diff.is_empty


def test_a_connected_plan_refuses_a_newer_schema(shop, database):
    apply(database, shop.plan())
    database.call("record_version", schema_version=99, tool_version="9.9")

    with pytest.raises(SchemaTooNew, match=r"99.*9\.9"):
        difference(database, shop.plan())
