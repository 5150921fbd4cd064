"""Schedules in a deployment: planned, stored, compared and removed like queues and features."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from rowpost.deploy.apply import apply, difference
from rowpost.deploy.plan import plan
from rowpost.deploy.queues import drop_queue
from rowpost.deploy.review import read_definition, review
from rowpost.deploy.verify import verify
from rowpost.settings.due_times import DueTimes
from rowpost.settings.environment import QueueSettings, ScheduleSettings, Settings

NIGHTLY = ScheduleSettings(
    "nightly", "Sales", "Billing", "Shop.MakeReport", DueTimes("0 2 * * *", zone="Europe/Berlin")
)
HOURLY = ScheduleSettings("hourly", "Sales", "Sales", "Shop.Count", DueTimes(interval=timedelta(hours=1)), "all")


def declaring(shop, *schedules, environment="shop", uncertain=False, **more):
    made = plan(replace(shop.settings, environment=environment, features=(), schedules=schedules, **more))
    return replace(made, uncertain=(("schedules", "a handler of the environment"),) if uncertain else ())


def names(database):
    return [row.schedule_name for row in database.call("list_schedules")]


def items(database, planned):
    found = review(difference(database, planned), database.engine, read_definition(database)).items
    return [(item.name, item.state) for item in found if item.name.startswith("schedule ")]


def kinds(database, planned):
    return [(each.kind, each.subject) for each in verify(database, planned)]


def test_an_environment_without_schedules_has_no_table_and_no_procedure_of_them(shop, database):
    apply(database, declaring(shop))

    assert "schedules" not in declaring(shop).features
    assert not [
        step for step in declaring(shop).steps if "schedule" in step.script_name and "delayed" not in step.script_name
    ]


def test_a_new_schedule_is_planned_stored_and_then_clean(shop, database):
    apply(database, declaring(shop))

    planned = items(database, declaring(shop, NIGHTLY, HOURLY))
    missing = kinds(database, declaring(shop, NIGHTLY))
    apply(database, declaring(shop, NIGHTLY, HOURLY))

    assert planned == [("schedule nightly", "added"), ("schedule hourly", "added")]
    assert ("not_applied", "schedule nightly") in missing
    assert names(database) == ["hourly", "nightly"]
    assert verify(database, declaring(shop, NIGHTLY, HOURLY)) == []
    assert difference(database, declaring(shop, NIGHTLY, HOURLY)).is_empty


def test_a_changed_schedule_is_planned_and_stored(shop, database):
    apply(database, declaring(shop, NIGHTLY))
    later = replace(NIGHTLY, due=DueTimes("0 3 * * *", zone="Europe/Berlin"))

    planned, found = items(database, declaring(shop, later)), kinds(database, declaring(shop, later))
    apply(database, declaring(shop, later))

    assert (planned, found) == ([("schedule nightly", "changed")], [("schedule_changed", "schedule nightly")])
    assert [row.cron for row in database.call("list_schedules")] == ["0 3 * * *"]


@pytest.mark.parametrize("by_queue", [False, True])
@pytest.mark.promise("undeclared-schedules-go")
def test_a_schedule_that_is_gone_is_planned_and_removed(shop, database, by_queue):
    apply(database, declaring(shop, NIGHTLY, HOURLY))

    planned, found = items(database, declaring(shop, HOURLY)), kinds(database, declaring(shop, HOURLY))
    result = apply(database, declaring(shop, HOURLY), by_queue=by_queue)

    assert (planned, found) == ([("schedule nightly", "undeclared")], [("not_declared", "schedule nightly")])
    assert (result.removed, result.kept, names(database)) == (("schedule nightly",), (), ["hourly"])
    assert difference(database, declaring(shop, HOURLY)).is_empty


@pytest.mark.parametrize("by_queue", [False, True])
def test_the_last_schedule_goes_with_its_feature(shop, database, by_queue):
    apply(database, declaring(shop, NIGHTLY))

    result = apply(database, declaring(shop), by_queue=by_queue)

    assert result.removed == ("schedule nightly",)
    assert "tables/033_schedule.sql" in result.dropped
    assert difference(database, declaring(shop)).is_empty
    assert verify(database, declaring(shop)) == []


def test_a_schedule_that_another_environment_declares_stays_and_is_named(shop, database):
    apply(database, declaring(shop, NIGHTLY))
    apply(database, declaring(shop, NIGHTLY, environment="other"))

    result = apply(database, declaring(shop))

    reasons = {each.subject: each.reason for each in result.kept}
    assert (names(database), result.removed) == (["nightly"], ())
    assert reasons["the schedule nightly"] == "the environment other declares it"


def test_a_schedule_that_only_another_environment_declared_stays_and_is_named(shop, database):
    apply(database, declaring(shop, NIGHTLY, environment="other"))

    result = apply(database, declaring(shop, HOURLY))

    assert names(database) == ["hourly", "nightly"]
    assert "the schedule nightly" in [each.subject for each in result.kept]
    assert difference(database, declaring(shop, HOURLY)).is_empty


@pytest.mark.promise("undeclared-schedules-go")
def test_a_schedule_that_a_handler_may_declare_that_cannot_be_imported_stays_and_is_named(shop, database):
    apply(database, declaring(shop, NIGHTLY))

    result = apply(database, declaring(shop, uncertain=True))

    (kept,) = [each for each in result.kept if each.subject == "the schedule nightly"]
    assert (names(database), "cannot be imported here" in kept.reason) == (["nightly"], True)


def test_a_queue_that_is_dropped_takes_no_record_of_a_schedule_with_its_name(shop, database):
    apply(database, declaring(shop, replace(NIGHTLY, name="Billing")))

    drop_queue(database, "Billing")

    assert "schedule:Billing" in [row.feature for row in database.call("list_features")]


def test_the_script_for_hand_stores_and_records_a_schedule(shop):
    script = declaring(shop, NIGHTLY).script

    assert re.search(r"register_schedule.*'nightly'.*'0 2 \* \* \*'", script, re.DOTALL)
    assert re.search(r"record_feature.*'schedule:nightly'", script)


def test_what_is_done_stays_done_when_apply_runs_again(shop, database, sql):
    apply(database, declaring(shop, NIGHTLY))
    sql.run("UPDATE rowpost.schedule SET ticked_to = '2999-01-01', is_paused = " + shop.spelt("true", "1"))

    apply(database, declaring(shop, NIGHTLY, HOURLY))

    assert sql.value("SELECT COUNT(*) FROM rowpost.schedule WHERE ticked_to = '2999-01-01'") == 1


def test_an_earlier_release_knows_no_schedules(shop, folder):
    for each in folder.rglob("*schedule*"):
        if each.is_file() and "reschedule" not in each.name and "procedures" in each.parts:
            each.unlink()

    assert plan(replace(Settings(), queues=(QueueSettings("Sales"),), schedules=(NIGHTLY,)), folder).schedules == ()
