"""rowpost schedules, and schedules in plan, apply, verify and run: as processes."""

import re

import pytest

from rowpost.database.connection import connect_url
from tests.support.program import Program, environment_file, rowpost
from tests.support.workers import eventually

__all__ = ["rowpost"]

REPORTS = """
from dataclasses import dataclass
from datetime import datetime, timedelta

from rowpost.endpoint.endpoint import Endpoint
from rowpost.wire.message_types import message_type

reports = Endpoint("Sales")


@message_type("Shop.MakeReport")
@dataclass
class MakeReport:
    day: str


@reports.every("0 2 * * *", zone="Europe/Berlin")
def nightly(due: datetime) -> MakeReport:
    return MakeReport(due.isoformat())


@reports.handles(MakeReport)
def make(message, context):
    pass
"""
QUEUES = (
    "queues: {Sales: {worker: {handler: 'shop_reports:reports', peek_delay: 0.1}}, Billing: {}, error: {}, audit: {}}\n"
)
CLEANING = "schedules: {cleaning: {to: Billing, queue: Sales, type: Shop.Clean, body: {days: 30}, interval: 3600}}\n"


@pytest.fixture
def environment(rowpost: Program):
    """Returns the program with an environment that declares so much, in a folder with the endpoint's module."""
    (rowpost.folder / "shop_reports.py").write_text(REPORTS)

    def declaring(text: str) -> Program:
        return rowpost.with_environment(environment_file(rowpost.folder, rowpost.engine, QUEUES + text, "scheduled"))

    yield declaring
    (rowpost.folder / "shop_reports.py").write_text(REPORTS.replace("@reports.every", "# @reports.every"))
    assert declaring("")("apply", "--yes").code == 0


@pytest.fixture
def shop(environment):
    program = environment(CLEANING)
    applied = program("apply", "--yes")
    assert applied.code == 0, applied.err
    return program


def listed(program: Program) -> dict:
    return {each["schedule"]: each for each in program("schedules", "list", "--json").json}


def operations(program: Program) -> list:
    return [each["name"] for each in program("operations", "list", "--json").lines]


def test_schedules_of_code_and_file_are_listed_with_when_they_are_due(shop: Program):
    found = listed(shop)
    shown = shop("schedules", "list").out

    assert set(found) == {"Sales.nightly", "cleaning"}
    assert (found["cleaning"]["queue"], found["cleaning"]["destination"], found["cleaning"]["due"]) == (
        "Sales", "Billing", "every 1:00:00",
    )  # fmt: skip
    assert found["Sales.nightly"]["due"] == "0 2 * * * (Europe/Berlin)"
    assert "Sales.nightly" in shown


def test_the_next_due_times_are_shown(shop: Program):
    shown = shop("schedules", "next", "Sales.nightly", "-n", 3)
    document = shop("schedules", "next", "cleaning", "--json").json

    assert len(re.findall(r"\d{4}-\d\d-\d\d 0[01]:00:00", shown.out)) == 3
    assert (document["schedule"]["schedule"], len(document["times"])) == ("cleaning", 10)


def test_a_schedule_is_paused_resumed_and_run_and_each_is_a_line_in_the_operation_log(shop: Program):
    paused = shop("schedules", "pause", "cleaning", "--reason", "closed")
    state = listed(shop)["cleaning"]
    resumed = shop("schedules", "resume", "cleaning", "--json")
    run = shop("schedules", "run", "cleaning")
    after = listed(shop)["cleaning"]

    assert (paused.code, paused.err) == (0, "Paused the schedule cleaning.\n")
    assert (state["paused"], state["reason"]) == (True, "closed")
    assert resumed.json["schedule"] == "cleaning"
    assert (run.code, after["paused"], bool(after["requested_at"])) == (0, False, True)
    assert operations(shop)[:3] == ["run-schedule", "resume-schedule", "pause-schedule"]


def test_the_metrics_of_a_queue_say_how_late_its_schedules_are(shop: Program):
    back = "ticked_to = '2026-01-01', next_due = '2026-01-01'"
    with connect_url(shop.engine, shop.variables["SHOP_URL"]) as database:
        database.driver_connection.execute(f"UPDATE rowpost.schedule SET {back} WHERE schedule_name = 'cleaning'")

    found = {each["queue"]: each["schedule_late_ms"] for each in shop("queue", "metrics", "--json").json}
    shown = shop("queue", "metrics").out

    assert found["Sales"] > 0
    assert found["Billing"] is None
    assert "schedule late s" in shown


@pytest.mark.parametrize("what", ["pause", "resume", "run", "next"])
def test_a_schedule_that_is_not_stored_is_named(shop: Program, what):
    refused = shop("schedules", what, "yearly")

    assert refused.code == 6
    assert "No schedule named 'yearly'" in refused.err


def test_plan_and_verify_show_a_schedule_that_is_new_and_one_that_is_gone(environment):
    assert environment(CLEANING)("apply", "--yes").code == 0
    program = environment(CLEANING.replace("cleaning", "sweeping"))

    planned, verified = program("plan"), program("verify")
    applied = program("apply", "--yes")

    assert re.search(r"new\s+schedule sweeping", planned.out)
    assert re.search(r"no longer declared.*schedule cleaning", planned.out)
    assert verified.code == 1
    assert applied.code == 0
    assert set(listed(program)) == {"Sales.nightly", "sweeping"}
    assert program("verify").code == 0


def test_a_schedule_of_code_that_cannot_be_imported_stays_and_is_named(shop: Program):
    (shop.folder / "shop_reports.py").write_text("import nowhere\n")

    applied = shop("apply", "--yes")

    assert "Sales.nightly" in listed(shop)
    assert re.search(r"Stays .*the schedule Sales\.nightly, because .* cannot be imported here", applied.err)


def test_run_refuses_to_start_if_a_schedule_is_not_stored_and_install_stores_it(environment):
    program = environment("")
    program("apply", "--yes")
    missing = environment(CLEANING)

    refused = missing("run")

    assert refused.code == 6
    assert "'cleaning'" in refused.err
    assert "rowpost apply" in refused.err


def test_install_stores_the_schedules_of_one_endpoint_and_removes_none_of_another(environment):
    program = environment(CLEANING)
    (program.folder / "shop_sums.py").write_text(
        REPORTS.replace('Endpoint("Sales")', 'Endpoint("Billing")').replace("MakeReport", "MakeSum")
    )

    first = program("run", "--install", "--until-idle", "shop_reports:reports")
    second = program("run", "--install", "--until-idle", "shop_sums:reports")

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert {"Sales.nightly", "Billing.nightly"} <= set(listed(program))
    assert program("apply", "--yes").code == 0


def test_a_supervisor_sends_what_is_requested(shop: Program):
    assert shop("queue", "purge", "Billing", "--yes").code == 0
    shop("schedules", "run", "cleaning")

    with shop.started("run"):
        eventually(lambda: "Shop.Clean" in shop("queue", "browse", "Billing", "--json").out, "the message is sent")

    assert listed(shop)["cleaning"]["requested_at"] is None
