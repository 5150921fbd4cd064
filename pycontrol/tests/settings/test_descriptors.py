"""What the environment says about queues and message types for people: read, listed, on pages, in metrics."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from rowpost.dashboard import app
from rowpost.dashboard.access import LoopbackAccess
from rowpost.settings.descriptor import MessageTypeSettings
from rowpost.settings.environment import QueueSettings, load_settings
from rowpost.transport.queue import Queue
from rowpost.workers.exposition.families import Families
from rowpost.workers.exposition.observations import Observations, Status
from rowpost.workers.snapshot import QueueSnapshot, Snapshot
from tests.support.dashboard import serving
from tests.support.program import QUEUES, Program, environment_file, rowpost
from tests.support.scraped import Scrape

__all__ = ["rowpost"]

WIKI = "https://wiki.example/sales?page=1&part=2"
SAID = {"description": "Orders of the <web> shop", "owner": "Team Sales", "runbook": WIKI}
FILE = f"""
queues:
  Sales: {{description: Orders of the <web> shop, owner: Team Sales, runbook: "{WIKI}"}}
  Split: {{owner: Team Split, partitions: {{by: Shop.Key, count: 2}}}}
  Billing: {{}}
external:
  Legacy: {{owner: Team Legacy}}
message_types:
  Shop.Messages.PlaceOrder: {{description: A customer orders, owner: Team Web, runbook: "{WIKI}"}}
"""


def test_queues_partitions_and_types_are_described(tmp_path):
    path = tmp_path / "shop.yml"
    path.write_text(f"engine: embedded{FILE}", encoding="utf-8")
    settings = load_settings(path)

    owners = {queue.name: queue.owner for queue in settings.queues}
    sales = settings.queue("Sales")
    assert (sales.description, sales.owner, sales.runbook) == tuple(SAID.values())
    assert owners == {
        "Sales": "Team Sales",
        "Split": "Team Split",
        "Split.p1": "Team Split",
        "Split.p2": "Team Split",
        "Billing": "",
        "Legacy": "Team Legacy",
    }
    assert settings.message_type("Shop.Messages.PlaceOrder").owner == "Team Web"
    assert settings.message_type("Shop.Other") is None


def test_the_list_of_queues_shows_them(rowpost: Program):
    described = QUEUES.replace("Sales: {}", f'Sales: {{description: Orders, owner: Team Sales, runbook: "{WIKI}"}}')
    made = rowpost.with_environment(environment_file(rowpost.folder, rowpost.engine, described, "described"))
    listed = {queue["queue"]: queue for queue in made("queue", "list", "--json").json}
    text, plain = made("queue", "list").out, rowpost("queue", "list").out

    assert [listed["Sales"][key] for key in SAID] == ["Orders", "Team Sales", WIKI]
    assert [listed["Billing"][key] for key in SAID] == [None, None, None]
    assert "Team Sales" in text
    assert "owner" not in plain


def test_browsing_a_queue_says_whose_message_types_it_has_shown(rowpost: Program):
    described = f"{QUEUES}message_types: {{Shop.Placed: {{description: A customer orders, owner: Team Web}}, Shop.Other: {{owner: Nobody}}}}\n"
    made = rowpost.with_environment(environment_file(rowpost.folder, rowpost.engine, described, "typed"))
    for _ in range(2):
        assert made("send", "Billing", "--type", "Shop.Placed", "--body", "{}").code == 0
    assert made("send", "Billing", "--raw", "--body", "{}").code == 0
    shown = made("queue", "browse", "Billing")

    assert shown.err == "Shop.Placed: A customer orders, owner: Team Web\n"
    assert made("queue", "purge", "Billing", "--yes").code == 0


@pytest.fixture
def client(target):
    if target.babelfish:
        pytest.skip("Babelfish has no HAS_PERMS_BY_NAME for objects")
    others = tuple(queue for queue in target.settings.queues if queue.name != "Sales")
    types = (
        MessageTypeSettings(
            name="Shop.Messages.PlaceOrder", owner="Team Web", description="A customer orders", runbook=WIKI
        ),
    )
    settings = replace(target.settings, queues=(QueueSettings("Sales", **SAID), *others), message_types=types)
    with serving(app(settings, access=LoopbackAccess())) as client:
        yield client


def test_pages_show_them_escaped(client, database, sql):
    sql.empty("Sales")
    Queue("Sales", database).send(b"{}", {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder, Shop"})

    pages = {path: client.get(path).text for path in ("/", "/queue/Sales", "/queue/Billing")}

    for path in ("/", "/queue/Sales"):
        assert "Orders of the &lt;web&gt; shop" in pages[path], path
        assert "Team Sales" in pages[path]
        assert 'href="https://wiki.example/sales?page=1&amp;part=2"' in pages[path]
    assert 'title="A customer orders Owner: Team Web"' in pages["/queue/Sales"]
    assert "Runbook" not in pages["/queue/Billing"]


def test_the_interface_returns_them(client):
    sales = client.get("/api/v1/queue", params={"queue": "Sales"}).json()

    assert {key: sales[key] for key in SAID} == SAID


def test_metrics_carry_them(target):
    figures = dict.fromkeys(("handled", "failed", "delayed", "moved_to_error", "expired", "poison", "died"), 0)
    queues = tuple(
        QueueSnapshot(queue=name, depth=0, workers=1, busy=0, limit=4, target=1, rate=0.0, critical=False, **figures)
        for name in ("Sales", "Billing")
    )
    types = (MessageTypeSettings(name="Shop.Placed", owner="Team Web"),)
    settings = replace(
        target.settings, queues=(QueueSettings("Sales", **SAID), QueueSettings("Billing")), message_types=types
    )
    registry = CollectorRegistry()
    registry.register(Families(lambda: Status(settings, Snapshot(queues), {}, {}, 0.0), Observations()))

    found = Scrape(registry.collect())

    assert found.value("rowpost_queue_info", queue="Sales", owner="Team Sales", runbook=WIKI) == 1
    assert found.value("rowpost_queue_info", queue="Billing", owner="", runbook="") == 1
    assert found.value("rowpost_message_type_info", message_type="Shop.Placed", owner="Team Web", runbook="") == 1
