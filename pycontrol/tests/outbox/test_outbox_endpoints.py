"""Outboxes as a user and an operator meet them: the environment's file, the program, supervisors, two engines."""

import json
import os
import sys
from collections import Counter
from dataclasses import replace

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import business_settings, plan
from rowpost.errors import SettingsError
from rowpost.outbox.declaration import encode_outgoing
from rowpost.settings.engine import engine_of
from rowpost.settings.environment import load_settings
from rowpost.transport.queue import Queue
from rowpost.wire.outgoing import AddressedMessage
from rowpost.workers import events
from rowpost.workers.tasks import outbox_cleaner
from tests.support.crashing import TYPE
from tests.support.outboxes import endpoint_of, handle_all, pipeline_of
from tests.support.program import Program
from tests.support.workers import Running, eventually

KEY = {"endpoint": "Sales", "message_id": "m-1"}


class Site:
    """An environment of two databases, its file, and what is in both."""

    def __init__(self, file, url, business_url, folder):
        self.file, self.url, self.business_url = file, url, business_url
        self.rowpost = Program(file, folder)

    @property
    def settings(self):
        return load_settings(self.file)

    def deploy(self):
        with connect_url(engine_of(self.url), self.url) as database:
            apply(database, plan(self.settings))
        with connect_url(engine_of(self.business_url), self.business_url) as database:
            apply(database, plan(business_settings(self.settings, self.settings.outboxes[0])))
            database.driver_connection.execute("CREATE TABLE business (number integer NOT NULL)")

    def order(self, number, times=1):
        with connect_url(engine_of(self.url), self.url) as database:
            headers = {"NServiceBus.EnclosedMessageTypes": TYPE, "NServiceBus.MessageId": f"m-{number}"}
            for _ in range(times):
                Queue("Sales", database).send(b'{"Number":%d}' % number, headers)

    def leave_behind(self):
        """What a worker leaves that dies after the business commit, and whose message is gone."""
        operation = AddressedMessage({"NServiceBus.MessageId": "1"}, b'{"Number":1}', "Billing")
        self.in_business(lambda database: database.call("record_handled", **KEY))
        self.in_business(
            lambda database: database.call("store_operations", **KEY, operations=encode_outgoing([operation]))
        )

    def in_business(self, work):
        with connect_url(engine_of(self.business_url), self.business_url) as database:
            return work(database)

    def rows(self, statement):
        return self.in_business(
            lambda database: [tuple(row) for row in database.driver_connection.execute(statement).fetchall()]
        )

    def run(self, statement):
        self.in_business(lambda database: database.driver_connection.execute(statement))

    def ledger(self):
        return Counter(row[0] for row in self.rows("SELECT number FROM business"))

    def sent(self):
        with connect_url(engine_of(self.url), self.url) as database:
            return Counter(int(message.body.decode()[10:-1]) for message in Queue("Billing", database).browse(1000))


def write_file(folder, url, business_url, worker=False, more=""):
    sales = "{worker: {handler: 'tests.support.outboxes:sales', limit: 2, strategy: fixed}}" if worker else "{}"
    file = folder / "shop.yml"
    file.write_text(
        f"environment: shop\nengine: {engine_of(url)}\nurl: {json.dumps(url)}\n"
        f"queues: {{Sales: {sales}, Billing: {{}}, error: {{}}}}\n"
        f"outbox: {{business: {{url: {json.dumps(business_url)}{more}}}}}\n"
    )
    return file


@pytest.fixture
def site(new_database, tmp_path):
    """Two empty databases of the embedded server, and the environment's file."""
    url, business_url = new_database("embedded"), new_database("embedded")
    return Site(write_file(tmp_path, url, business_url), url, business_url, tmp_path)


# ------------------------------------------------------------------ the environment's file
def test_the_business_database_is_read_with_its_secret_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "s3:cret")

    settings = load_settings(
        write_file(
            tmp_path, "postgresql://db01/q", "postgresql://app:${SHOP_PASSWORD}@db02/shop", more=", retention: 60"
        )
    )

    (outbox,) = settings.outboxes
    assert (outbox.name, outbox.url, outbox.retention, outbox.engine) == (
        "business", "postgresql://app:s3%3Acret@db02/shop", 60.0, "postgresql",
    )  # fmt: skip
    assert "cret" not in repr(settings)


def test_a_business_database_may_be_of_another_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "a;b")

    settings = load_settings(
        write_file(tmp_path, "postgresql://db01/q", "Server=sql02;Database=shop;UID=app;PWD=${SHOP_PASSWORD}")
    )

    (outbox,) = settings.outboxes
    assert (outbox.engine, outbox.url) == ("sqlserver", "Server=sql02;Database=shop;UID=app;PWD={a;b}")
    assert business_settings(settings, outbox).default_schema == "dbo"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{business: {}}", "url"),
        ("{business: {url: shop}}", "url"),
        ("{business: {url: 'postgresql://a', retention: 0}}", "retention"),
        ("{business: {url: 'postgresql://a', retentoin: 1}}", "retentoin"),
    ],
)
def test_an_outbox_that_is_not_what_it_should_be_is_refused_with_its_key(tmp_path, text, key):
    file = tmp_path / "shop.yml"
    file.write_text(f"engine: postgresql\nurl: postgresql://db01/q\noutbox: {text}\n")

    with pytest.raises(SettingsError, match=rf"outbox\.business\.{key}"):
        load_settings(file)


# ------------------------------------------------------------------ the program
def test_plan_shows_both_databases_and_apply_deploys_both_and_verify_compares_both(site):
    before = site.rowpost("plan", "--json", "--exit-code")
    script = site.rowpost("plan", "--sql", "--outbox", "business")
    applied = site.rowpost("apply")
    after = site.rowpost("plan", "--json", "--exit-code")
    verified = site.rowpost("verify")

    assert [document.get("outbox") for document in before.lines] == [None, "business"]
    assert all("tables/015_outbox.sql" in {each["name"] for each in document["changes"]} for document in before.lines)
    assert "rowpost.outbox" in script.out
    assert "Sales" not in script.out
    assert (before.code, applied.code, after.code, verified.code) == (1, 0, 0, 0), applied.err
    assert "outbox business: clean" in verified.out


def test_the_script_of_the_queues_database_says_that_there_is_another(site):
    script = site.rowpost("plan", "--sql")

    assert "--outbox business" in script.err
    assert "Sales" in script.out


def test_an_outbox_that_the_environment_does_not_have_is_refused_with_those_that_it_has(site):
    result = site.rowpost("plan", "--outbox", "busines")

    assert result.code == 3
    assert "busines" in result.err
    assert "business" in result.err


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ("DROP TABLE rowpost.outbox_operations", "object_gone"),
        ("ALTER TABLE rowpost.outbox ALTER COLUMN message_id TYPE varchar(40)", "table_altered"),
    ],
)
def test_verify_finds_an_outbox_that_is_missing_or_altered_and_apply_makes_a_missing_one(site, change, finding):
    site.deploy()
    site.run(change)

    found = site.rowpost("verify", "--json")
    site.rowpost("apply")
    again = site.rowpost("verify", "--json")

    assert found.code == 1
    assert [each["kind"] for each in found.lines[1]["findings"]] == [finding]
    assert again.code == (0 if finding == "object_gone" else 1)


def test_a_business_database_that_is_down_is_named_and_nothing_is_deployed(site, tmp_path):
    write_file(tmp_path, site.url, "postgresql://127.0.0.1:1/business")

    result = site.rowpost("apply")

    assert result.code == 4
    assert "business database 'business'" in result.err
    with connect_url("postgresql", site.url) as database:
        assert database.driver_connection.execute("SELECT to_regnamespace('rowpost')").fetchone() == (None,)


def test_the_program_shows_what_has_not_left_and_sends_it(site):
    site.deploy()
    site.leave_behind()
    site.run("UPDATE rowpost.outbox SET handled_at = handled_at - interval '2 minutes'")

    before = site.rowpost("outbox", "status", "--json")
    cleaned = site.rowpost("outbox", "clean", "--json")
    after = site.rowpost("outbox", "status")

    assert (before.code, before.json[0]["undispatched"]) == (1, 1)
    assert (cleaned.code, cleaned.json["sent"], cleaned.json["removed"]) == (0, 1, 0)
    assert after.code == 0
    assert site.sent() == Counter([1])


def test_the_status_says_which_business_database_is_out_of_reach(site, tmp_path):
    write_file(tmp_path, site.url, "postgresql://127.0.0.1:1/business")

    result = site.rowpost("outbox", "status", "--json")

    assert (result.code, result.json) == (1, [{"outbox": "business", "reached": False}])
    assert "business database 'business'" in result.err


def test_an_environment_without_an_outbox_is_told_where_to_name_one(site):
    lines = [line for line in site.file.read_text().splitlines() if not line.startswith("outbox")]
    site.file.write_text("\n".join(lines))

    result = site.rowpost("outbox", "status")

    assert result.code == 3
    assert "`outbox`" in result.err


def test_run_refuses_an_endpoint_whose_outbox_nobody_names_before_a_worker_starts(site):
    site.deploy()
    lines = [line for line in site.file.read_text().splitlines() if not line.startswith("outbox")]
    site.file.write_text("\n".join(lines))
    site.rowpost.variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))

    result = site.rowpost("run", "tests.support.outboxes:sales")

    assert result.code == 3
    assert "No outbox is named 'business'" in result.err


# ------------------------------------------------------------------ supervisors
@pytest.fixture
def running(site, tmp_path):
    """The site deployed; its settings, with workers."""
    site.deploy()
    write_file(tmp_path, site.url, site.business_url, worker=True)
    return site


def test_a_supervisors_workers_handle_each_order_once_however_often_it_comes(running):
    for number in range(30):
        running.order(number, times=2)

    with Running(running.settings):
        eventually(lambda: running.sent() == Counter(range(30)), "every order is sent")
        eventually(lambda: not running.rows("SELECT 1 FROM rowpost.outbox_operations"), "the outbox is settled")

    assert running.ledger() == running.sent() == Counter(range(30))


def test_workers_wait_for_a_business_database_that_is_down_and_go_on_when_it_is_back(running):
    name = running.business_url.partition("?")[0].rpartition("/")[2]
    with connect_url("postgresql", running.url) as admin:
        with Running(running.settings) as supervisor:
            running.order(1)
            eventually(lambda: running.sent() == Counter([1]), "the first order is sent")
            admin.driver_connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            admin.driver_connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            try:
                running.order(2)
                eventually(lambda: supervisor.seen(events.Trouble), "the supervisor tells of the trouble")
            finally:
                admin.driver_connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            eventually(lambda: running.sent() == Counter([1, 2]), "the second order is sent")

        failures = admin.driver_connection.execute("SELECT count(*) FROM rowpost.failure").fetchone()

    assert failures == (0,)
    assert running.ledger() == Counter([1, 2])


def test_a_supervisor_sends_what_was_left_behind_and_forgets_what_is_old(running, monkeypatch):
    monkeypatch.setattr(outbox_cleaner, "CLEAN_INTERVAL_S", 0.1)
    running.leave_behind()
    running.run("UPDATE rowpost.outbox SET handled_at = handled_at - interval '2 minutes'")
    running.in_business(lambda database: database.call("record_handled", endpoint="Sales", message_id="old"))
    running.run("UPDATE rowpost.outbox SET handled_at = handled_at - interval '8 days' WHERE message_id = 'old'")

    with Running(running.settings):
        eventually(lambda: running.sent() == Counter([1]), "what was left behind is sent")
        eventually(
            lambda: running.rows("SELECT message_id FROM rowpost.outbox") == [("m-1",)], "the old one is forgotten"
        )


# ------------------------------------------------------------------ two engines
@pytest.mark.parametrize(("queues", "business"), [("embedded", "sqlserver"), ("sqlserver", "embedded")])
def test_queue_and_business_data_may_lie_on_different_engines(new_database, tmp_path, queues, business):
    if not os.environ.get("ROWPOST_TEST_SQLSERVER"):
        pytest.skip("no T-SQL engine: set ROWPOST_TEST_SQLSERVER")
    url, business_url = new_database(queues), new_database(business)
    site = Site(write_file(tmp_path, url, business_url), url, business_url, tmp_path)
    site.deploy()
    for number in (1, 2):
        site.order(number, times=2)

    with connect_url(engine_of(url), url) as database:
        pipeline = pipeline_of(database, endpoint_of("Sales", business_url))
        handle_all(pipeline)
        pipeline.close()

    assert site.ledger() == site.sent() == Counter([1, 2])
    assert replace(site.settings, url=None).outboxes[0].engine == engine_of(business_url)
