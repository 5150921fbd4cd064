"""Sagas of an endpoint with an outbox: their states are in the business database and commit with the outbox's record.

Killed processes are in `test_outbox_crashes.py`, concurrent messages of one instance in `sagas/test_saga_races.py`.
"""

import json
import os
import sys
from dataclasses import replace
from threading import Barrier, Thread

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.grants import grant_statements
from rowpost.deploy.plan import business_settings, plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.outbox.cleanup import send_left_behind
from rowpost.outbox.declaration import Outbox
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.databases import OutboxSettings
from rowpost.settings.engine import engine_of
from rowpost.settings.environment import load_settings
from rowpost.settings.saga import SagaSettings
from rowpost.settings.service_control import ServiceControlSettings
from rowpost.transport.queue import Queue
from tests.support.crashing import TYPE
from tests.support.logins import logins
from tests.support.outboxes import deploy_sagas, handle_all, make_tally, pipeline_of
from tests.support.probe import probe_for
from tests.support.program import Program
from tests.support.schema import named

KINDS = pytest.mark.parametrize("saga", ["pessimistic", "optimistic"])


class Shop:
    """A queue whose endpoint has an outbox, and the states of its sagas."""

    def __init__(self, queue, target, business, url):
        self.queue, self.target, self.business, self.url = queue, target, business, url

    def order(self, number, message_id=None):
        headers = {"NServiceBus.EnclosedMessageTypes": TYPE, "Shop.Group": "all"}
        self.queue.send(
            b'{"Number":%d}' % number, headers | {"NServiceBus.MessageId": message_id or f"{self.queue.name}/{number}"}
        )

    def endpoint(self, *sagas):
        made = Endpoint(
            self.queue.name,
            transaction_mode="receive_only",
            outbox=Outbox("business", url=self.url),
            recoverability=Recoverability(immediate_retries=2, delayed_retries=0),
        )
        for each in sagas:
            made.saga(each)
        deploy_sagas(self.target, made)
        return made

    def pipeline(self, endpoint, **options):
        return pipeline_of(self.target.connect(), endpoint, **options)

    def work(self, endpoint, **options):
        pipeline = self.pipeline(endpoint, **options)
        try:
            return handle_all(pipeline)
        finally:
            pipeline.close()

    def states(self, table="Tally"):
        return [json.loads(row.data)["Seen"] for row in self.business.call("list_sagas", table, count=10)]

    def sent(self):
        return sorted(int(each.body.decode()[10:-1]) for each in Queue("Billing", self.queue.database).browse(100))


@pytest.fixture
def shop(target, make_queue, sql, business_url):
    """A fresh queue; ledger, outbox and Billing are empty."""
    for name in ("Billing", "error"):
        sql.empty(name)
    sql.run("DELETE FROM rowpost.dispatch")
    with connect_url(engine_of(business_url), business_url) as business:
        for table in ("business", "rowpost.outbox", "rowpost.outbox_operations"):
            business.driver_connection.execute(f"DELETE FROM {table}")
        yield Shop(make_queue(), target, business, business_url)


def send_on(message, context):
    context.send(message, to="Billing", headers={"NServiceBus.EnclosedMessageTypes": TYPE})


def nothing(message, context):
    pass


# ------------------------------------------------------------------ one transaction
def test_the_state_is_stored_when_the_outboxs_transaction_commits_and_not_before(shop):
    before = []
    endpoint = shop.endpoint(make_tally(send_on))
    shop.order(1)

    shop.work(endpoint, step=lambda name: before.append(shop.states()) if name == "handled" else None)

    assert (before, shop.states(), shop.sent()) == ([[]], [[1]], [1])


@pytest.fixture
def two_sagas():
    """Two sagas that one message starts or changes."""
    return make_tally(nothing), make_tally(nothing, table="Tally_2")


@pytest.mark.parametrize("earlier", [0, 1], ids=["new", "existing"])
def test_several_sagas_of_one_message_are_stored_together(shop, two_sagas, earlier):
    endpoint = shop.endpoint(*two_sagas)
    for number in range(1, earlier + 2):
        shop.order(number)

    kinds = shop.work(endpoint)

    assert set(kinds) == {Kind.HANDLED}
    assert shop.states("Tally") == shop.states("Tally_2") == [[*range(1, earlier + 2)]]


@pytest.mark.parametrize("earlier", [0, 1], ids=["new", "existing"])
def test_several_sagas_of_one_message_are_not_stored_if_the_transaction_does_not_commit(shop, two_sagas, earlier):
    endpoint = shop.endpoint(*two_sagas)
    if earlier:
        shop.order(1)
        shop.work(endpoint)
    shop.order(2)
    pipeline = shop.pipeline(endpoint, step=end_at("handled"))

    with pytest.raises(KeyboardInterrupt):
        pipeline.process_one()

    pipeline.close()
    assert shop.states("Tally") == shop.states("Tally_2") == [[1]] * earlier
    assert shop.queue.peek() == 1


def end_at(step):
    def end(name):
        if name == step:
            raise KeyboardInterrupt

    return end


# ------------------------------------------------------------------ once
@KINDS
@pytest.mark.parametrize("earlier", [0, 1], ids=["new instance", "existing instance"])
@pytest.mark.promise("outbox-keeps-sagas")
def test_duplicates_at_the_same_time_change_a_saga_once(shop, saga, earlier):
    locks = saga == "pessimistic" and earlier  # then the second waits for the first one's commit
    if shop.target.babelfish and not locks:
        pytest.skip("Babelfish's receivers of one queue wait for each other")
    met = Barrier(2, timeout=20)

    def meet(message, context):
        if message.number == 2 and not locks:
            met.wait()
        send_on(message, context)

    endpoint = shop.endpoint(make_tally(meet, saga))
    if earlier:
        shop.order(1)
        shop.work(endpoint)
    shop.order(2, "twice")
    shop.order(2, "twice")
    pipelines = [shop.pipeline(endpoint) for _ in range(2)]
    outcomes = []
    threads = [Thread(target=lambda each=each: outcomes.append(each.process_one())) for each in pipelines]

    for each in threads:
        each.start()
    for each in threads:
        each.join(30)

    for each in pipelines:
        each.close()
    shop.work(endpoint)  # if one of them met the other while it sent
    assert {each.kind for each in outcomes} <= {Kind.HANDLED, Kind.DEADLOCKED}, outcomes
    assert shop.queue.peek() == 0
    assert shop.states() == [[*range(2 - earlier, 3)]]
    assert shop.sent().count(2) == 1


# ------------------------------------------------------------------ saga audit
@pytest.fixture
def control(make_queue):
    return make_queue("Particular.ServiceControl")


@pytest.mark.parametrize("ends_at", ["sent", "stored"], ids=["completes", "ends before the dispatch"])
def test_a_change_is_reported_once_with_the_messages_that_were_sent(shop, control, ends_at):
    endpoint = shop.endpoint(make_tally(send_on))
    endpoint.report_to(
        ServiceControlSettings(named('"Particular.ServiceControl"'), saga_audit=True), shop.queue.database
    )
    shop.order(1)
    pipeline = shop.pipeline(endpoint, step=end_at(ends_at))

    with pytest.raises(KeyboardInterrupt):
        pipeline.process_one()
    pipeline.close()
    shop.work(endpoint)
    send_left_behind(shop.queue.database, shop.business, {shop.queue.name}, older_than=0)

    reports = [json.loads(each.body) for each in control.browse(10)]
    assert [each["SagaType"] for each in reports if "SagaState" in each] == ["Shop.Tally"]
    assert (shop.states(), shop.sent()) == ([[1]], [1])


# ------------------------------------------------------------------ deployment
def test_the_tables_are_planned_for_the_business_database_alone(target, business_url):
    saga = SagaSettings("Tally", "Group", outbox="business")
    settings = replace(target.settings, sagas=(saga,), features=())

    of_queues, of_business = plan(settings), plan(business_settings(settings, OutboxSettings("business", business_url)))

    assert [each.name for each in of_queues.entries if each.noun == "saga"] == []
    assert [each.name for each in of_business.entries if each.noun == "saga"] == ["Tally"]
    assert ("sagas" in of_queues.features, "sagas" in of_business.features) == (False, True)


def test_a_login_needs_the_role_and_the_sagas_procedures_in_the_business_database(shop, business_url):
    if shop.business.engine != "postgresql":
        pytest.skip("a login of Babelfish belongs to one database")
    endpoint = shop.endpoint(make_tally(send_on))
    settings = business_settings(
        replace(shop.target.settings, sagas=endpoint.sagas), OutboxSettings("business", business_url)
    )
    shop.order(1)
    with logins(probe_for(shop.business), business_url) as made:
        login = made.make("tally")
        endpoint.outbox = replace(endpoint.outbox, url=made.url(login, business_url))
        for statement in grant_statements(settings, login, sagas=["Tally"]):
            shop.business.driver_connection.execute(statement)

        kinds = shop.work(endpoint)

        with connect_url("postgresql", made.url(login, business_url)) as database:
            with pytest.raises(database.dialect.driver_error(), match="permission denied"):
                database.driver_connection.execute('SELECT * FROM "Tally"')
    assert (kinds, shop.states()) == ([Kind.HANDLED], [[1]])


@pytest.fixture
def site(new_database, tmp_path):
    """The environment of an endpoint whose saga is in a business database: the program, and its URLs."""
    url, business = new_database("embedded"), new_database("embedded")
    write_file(tmp_path, url, business, "{worker: {handler: 'tests.support.outboxes:tallying', limit: 1}}")
    program = Program(tmp_path / "shop.yml", tmp_path)
    program.variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return program, url, business


def write_file(folder, url, business, sales="{}", sagas="{}"):
    (folder / "shop.yml").write_text(
        f"environment: shop\nengine: postgresql\nurl: {json.dumps(url)}\n"
        f"queues: {{Tallying: {sales}, Billing: {{}}, error: {{}}}}\n"
        f"outbox: {{business: {{url: {json.dumps(business)}}}}}\nsagas: {sagas}\n"
    )
    return folder / "shop.yml"


def test_apply_makes_the_tables_in_the_business_database_where_the_commands_find_them(site):
    rowpost, url, business = site

    planned = rowpost("plan", "--json")
    applied = rowpost("apply")
    verified = rowpost("verify")
    script = rowpost("plan", "--sql", "--outbox", "business")
    listed = rowpost("sagas", "list", "--outbox", "business", "--json")
    instances = rowpost("sagas", "list", "Tally", "--outbox", "business", "--json")
    granted = rowpost("queue", "grant", "--login", "sales", "--saga", "Tally", "--outbox", "business")

    created = [{each["name"] for each in document["changes"]} for document in planned.lines]
    assert [any("saga Tally" in name for name in names) for names in created] == [False, True]
    assert (applied.code, verified.code) == (0, 0), applied.err + verified.err
    assert "Tally" in script.out
    assert [each["saga"] for each in listed.json] == ["Tally"]
    assert instances.json == []
    assert "load_saga:Tally" in granted.out
    with connect_url("postgresql", url) as database, connect_url("postgresql", business) as other:
        found = [
            each.driver_connection.execute("SELECT to_regclass('\"Tally\"')").fetchone() for each in (database, other)
        ]
    assert found == [(None,), ('"Tally"',)]


def test_run_refuses_an_endpoint_whose_saga_has_no_table_in_the_business_database(site):
    rowpost, url, business = site
    settings = load_settings(rowpost.environment)  # without the sagas of endpoints
    for database_url, wanted in ((url, settings), (business, business_settings(settings, settings.outboxes[0]))):
        with connect_url("postgresql", database_url) as database:
            apply(database, plan(wanted))

    result = rowpost("run", "tests.support.outboxes:tallying")

    assert (result.code != 0, "'Tally' is not deployed" in result.err) == (True, True), result.err


def test_a_saga_of_the_environments_file_names_the_outbox_that_has_its_table(tmp_path):
    file = write_file(
        tmp_path, "postgresql://a/q", "postgresql://a/b", sagas="{Tally: {correlation: Group, outbox: business}}"
    )

    (saga,) = load_settings(file).sagas

    assert saga == SagaSettings("Tally", "Group", outbox="business")


def test_an_outbox_that_the_environment_does_not_declare_is_refused_where_a_saga_names_it(tmp_path):
    file = write_file(tmp_path, "postgresql://a/q", "postgresql://a/b", sagas="{T: {correlation: A, outbox: busines}}")

    with pytest.raises(SettingsError, match=r"sagas\.T\.outbox.*'busines'"):
        load_settings(file)
