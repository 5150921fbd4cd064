"""rowpost run --metrics: as a process, scraped as Prometheus does."""

import json

import pytest

from tests.support.program import Program, environment_file, rowpost
from tests.support.scraped import health, scrape
from tests.support.workers import eventually

__all__ = ["rowpost"]

HANDLERS = "def place(message, connection):\n    pass\n"
WORKED = """
queues:
  Sales: {worker: {handler: 'metrics_handlers:place', limit: 2, peek_delay: 0.1}}
  Billing: {}
  error: {}
  audit: {}
"""


@pytest.fixture
def shop(rowpost: Program) -> Program:
    (rowpost.folder / "metrics_handlers.py").write_text(HANDLERS)
    made = rowpost.with_environment(environment_file(rowpost.folder, rowpost.engine, WORKED, "measured"))
    assert made("queue", "purge", "Sales", "--yes").code == 0
    return made


def served(run) -> str:
    events = (json.loads(line) for line in run.process.stdout)
    return next(event["url"] for event in events if event["event"] == "MetricsServed")


def test_a_running_supervisor_is_scraped_and_says_that_it_is_ready(shop: Program):
    assert shop("send", "Sales", "--type", "Shop.Placed", "--body", "{}").code == 0
    with shop.started("run", "--json", "--metrics", "0") as run:
        url = served(run)
        eventually(
            lambda: scrape(url).value("rowpost_messages_handled_total", queue="Sales") == 1, "it is handled and counted"
        )
        eventually(lambda: health(url, "ready") == (200, []), "it is ready")
        found, live = scrape(url), health(url, "live")
        run.interrupt()
        run.process.wait()

    assert found.value("rowpost_critical_time_seconds_count", queue="Sales", message_type="Shop.Placed") == 1
    assert found.value("rowpost_workers_limit", queue="Sales") == 2
    assert found.value("rowpost_supervisor_info", environment="measured", process_id=str(run.process.pid)) == 1
    assert live == (200, [])


def test_the_environment_names_the_address_too(shop: Program):
    worked = WORKED + "supervisor: {metrics: '127.0.0.1:0'}\n"
    with shop.with_environment(environment_file(shop.folder, shop.engine, worked, "metered")).started(
        "run", "--json"
    ) as run:
        url = served(run)
        assert scrape(url).value("rowpost_workers_limit", queue="Sales") == 2
        run.interrupt()
        run.process.wait()


@pytest.mark.parametrize("wrong", ["port", "70000", "host:", ":9464"])
def test_what_is_no_address_is_refused(shop: Program, wrong):
    refused = shop("run", "--metrics", wrong)

    assert refused.code == 2
    assert refused.err.startswith(
        f"rowpost: --metrics: {wrong!r} is no address for metrics: write a port, such as 9464"
    )


@pytest.mark.parametrize("wrong", ["true", "70000", "'a b:1'", "[1]"])
def test_a_wrong_address_in_the_environment_names_the_key(shop: Program, wrong):
    worked = WORKED + f"supervisor: {{metrics: {wrong}}}\n"
    refused = shop.with_environment(environment_file(shop.folder, shop.engine, worked, "wrong"))("run")

    assert refused.code == 3
    assert "supervisor.metrics: " in refused.err
    assert "Traceback" not in refused.err
