"""The dashboard's page of schedules, its operations, and the JSON interface to them."""

import re
from dataclasses import replace

import pytest

from rowpost.dashboard import app
from rowpost.dashboard.access import LoopbackAccess
from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.grants import grant_role
from rowpost.deploy.plan import plan
from rowpost.settings.due_times import DueTimes
from rowpost.settings.environment import QueueSettings, ScheduleSettings
from tests.support.dashboard import Browser, serving
from tests.support.logins import logins

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def stored(target, database, sql):
    sql.run("DELETE FROM rowpost.schedule")
    nightly = ScheduleSettings("nightly", "Sales", "Billing", "Shop.MakeReport", DueTimes("0 2 * * *"))
    settings = replace(
        target.settings,
        environment="dashboard",
        queues=(QueueSettings("Sales"), QueueSettings("Billing")),
        schedules=(nightly, replace(nightly, name=f"{SCRIPT}/?#", type=SCRIPT)),
    )
    apply(database, plan(settings))
    yield settings
    sql.run("DELETE FROM rowpost.schedule")


@pytest.fixture
def client(target, stored):
    if target.babelfish:
        pytest.skip("Babelfish has no HAS_PERMS_BY_NAME for objects")
    with serving(app(target.settings, access=LoopbackAccess())) as client:
        yield client


def schedule(database, name="nightly"):
    return next(row for row in database.call("list_schedules") if row.schedule_name == name)


def test_schedules_are_shown_and_what_their_names_hold_is_escaped(client: Browser):
    text = client.get("/schedules").text

    assert "nightly" in text
    assert "0 2 * * * (UTC)" in text
    assert "<script>alert" not in text


def test_a_schedule_is_paused_resumed_and_run_by_its_form(client: Browser, database):
    def submit(operation, name="nightly"):
        answer = client.submit("/schedules", f"/schedule/{name}", operation=operation)
        return client.text(answer.headers["location"]), schedule(database)

    paused, state = submit("pause")
    resumed, after = submit("resume")
    run, requested = submit("run")

    assert ("Paused the schedule nightly" in paused, state.is_paused) == (True, True)
    assert ("Resumed the schedule nightly" in resumed, after.is_paused) == (True, False)
    assert ("Requested a message" in run, bool(requested.requested_at)) == (True, True)
    assert [row.operation_name for row in database.call("list_operations", count=3)] == [
        "run-schedule", "resume-schedule", "pause-schedule",
    ]  # fmt: skip


def test_a_schedule_with_an_odd_name_is_paused_by_its_form(client: Browser, database):
    path = re.search(r'action="(/schedule/%3C[^"]+)"', client.get("/schedules").text)[1]

    client.submit("/schedules", path, operation="pause")

    assert schedule(database, f"{SCRIPT}/?#").is_paused


def test_a_form_that_says_nothing_changes_nothing(client: Browser, database):
    answer = client.submit("/schedules", "/schedule/nightly", operation="delete")

    assert (answer.status_code, schedule(database).is_paused) == (400, False)


def test_the_interface_lists_shows_and_changes_schedules(client: Browser, database):
    listed = client.get("/api/v1/schedules").json()["schedules"]
    times = client.get("/api/v1/schedule", params={"schedule": "nightly", "count": 3}).json()
    paused = client.post("/api/v1/schedules/pause", json={"schedule": "nightly", "reason": "closed"})
    unknown = client.post("/api/v1/schedules/run", json={"schedule": "yearly"})

    assert "nightly" in [each["schedule"] for each in listed]
    assert len(times["times"]) == 3
    assert paused.json()["schedule"] == "nightly"
    assert schedule(database).is_paused
    assert (unknown.status_code, unknown.json()["kind"]) == (404, "ScheduleNotFound")


def test_a_reader_sees_schedules_and_may_change_none(target, sql, stored, database):
    with logins(sql, target.url) as made:
        name = made.make("reader")
        sql.run(grant_role(database.dialect, "rowpost_reader", name))
        with serving(app(replace(target.settings, url=made.url(name)))) as client:
            text = client.get("/schedules").text
            refused = client.post("/api/v1/schedules/pause", json={"schedule": "nightly"})

    assert ("nightly" in text, "Pause" in text) == (True, False)
    assert (refused.status_code, schedule(database).is_paused) == (403, False)


def test_a_database_without_the_feature_has_a_page_that_says_so(target, new_database):
    if target.settings.engine != "postgresql":
        pytest.skip("a database of its own is made on PostgreSQL")
    url = new_database(target.label)
    with connect_url(target.settings.engine, url) as database:
        apply(database, plan(replace(target.settings, url=url, features=())))

    with serving(app(replace(target.settings, url=url, features=()))) as client:
        answer = client.get("/schedules")

    assert (answer.status_code, "is not deployed here" in answer.text) == (200, True)
