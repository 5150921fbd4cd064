"""`rowpost spark jobs` and the cleaning of jobs: on every engine, without Spark."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rowpost.database.connection import Connection, connect_url
from rowpost.settings.environment import Settings, SupervisorSettings
from rowpost.transport.jobs import clean_jobs
from rowpost.wire.message import OutgoingMessage
from rowpost.workers.tasks.job_cleaner import make_job_cleaner
from tests.support.program import Program, rowpost
from tests.support.workers import eventually

__all__ = ["rowpost"]

FAILED, NOT_FOUND, USAGE = 7, 6, 2


@pytest.fixture
def spark(rowpost: Program) -> Program:
    """The program, with a deployed database that has the feature spark."""
    assert rowpost("apply").code == 0
    return rowpost


@pytest.fixture
def database(spark: Program) -> Iterator[Connection]:
    with connect_url(spark.engine, spark.variables["SHOP_URL"]) as database:
        yield database


def begin(database: Connection, key: str = "monday", queue: str = "Sales", mode: str = "staged") -> None:
    database.call_atomically(
        "begin_job", job_key=f"{key}@{queue}", destination=queue, run="run-1", mode=mode, started_by="me@host"
    )


def stage(database: Connection, key: str = "monday@Sales") -> None:
    database.call_atomically("stage_messages", job_key=key, attempt="run-1/0", messages=[OutgoingMessage(b"x")] * 3)


def test_jobs_are_listed_and_shown_with_state_owner_and_times(spark, database):
    assert "There are no jobs" in spark("spark", "jobs", "list").out
    begin(database)
    stage(database)
    begin(database, "tuesday")
    database.call_atomically("end_job", job_key="tuesday@Sales", run="run-1", done=False)

    listed = json.loads(spark("spark", "jobs", "list", "--json").out)
    failed = json.loads(spark("spark", "jobs", "list", "--state", "failed", "--json").out)
    (shown,) = json.loads(spark("spark", "jobs", "show", "monday", "--json").out)

    assert [(job["key"], job["state"], job["messages_staged"]) for job in listed] == [
        ("tuesday", "failed", 0),
        ("monday", "running", 3),
    ]
    assert [job["key"] for job in failed] == ["tuesday"]
    assert (shown["destination"], shown["started_by"], shown["mode"]) == ("Sales", "me@host", "staged")
    assert shown["owner_login"] and shown["started_at"].endswith("Z")
    assert "monday" in spark("spark", "jobs", "list").out and "me@host" in spark("spark", "jobs", "show", "monday").out


def test_a_job_that_failed_is_forgotten_and_says_what_it_had_sent(spark, database):
    begin(database, mode="direct")
    with database.transaction():
        database.call("claim_ledger", job_key="monday@Sales", part=0)
        database.call("settle_ledger", job_key="monday@Sales", part=0, messages=7, digest="d")
    database.call_atomically("end_job", job_key="monday@Sales", run="run-1", done=False)

    asked = spark("spark", "jobs", "forget", "monday")
    forgotten = spark("spark", "jobs", "forget", "monday", "--yes")
    again = spark("spark", "jobs", "forget", "monday", "--yes")

    assert asked.code == USAGE
    assert forgotten.code == 0 and "sent 7 messages in 1 parts to Sales" in forgotten.out
    assert again.code == NOT_FOUND
    assert database.call("claim_ledger", job_key="monday@Sales", part=0)[0].claimed


def test_a_job_that_runs_is_forgotten_only_by_force_and_with_what_it_stored(spark, database):
    begin(database)
    stage(database)

    refused = spark("spark", "jobs", "forget", "monday", "--yes")
    forced = spark("spark", "jobs", "forget", "monday@Sales", "--yes", "--force", "--json")

    assert refused.code == FAILED and "me@host" in refused.err
    assert json.loads(forced.out)["forgotten"] is True
    assert database.call("drop_staged")[0].dropped == 0


def test_a_key_with_jobs_for_several_queues_is_not_forgotten_without_the_queue(spark, database):
    begin(database)
    begin(database, queue="Billing")

    refused = spark("spark", "jobs", "forget", "monday", "--yes", "--force")

    assert refused.code == USAGE and "monday@Billing" in refused.err


def test_the_steps_of_a_replay_are_one_job_of_the_key_that_was_typed(spark, database):
    for step in range(3):
        begin(database, f"m1/{step}/8de4e0ea7370")
    stage(database, "m1/1/8de4e0ea7370@Sales")
    begin(database, "m1/2")  # of a program that chose such a key
    database.call_atomically("end_job", job_key="m1/2/8de4e0ea7370@Sales", run="run-1", done=False)

    listed = json.loads(spark("spark", "jobs", "list", "--json").out)
    (shown,) = json.loads(spark("spark", "jobs", "show", "m1", "--json").out)
    (step,) = json.loads(spark("spark", "jobs", "show", "m1/1/8de4e0ea7370", "--json").out)
    forgotten = json.loads(spark("spark", "jobs", "forget", "m1@Sales", "--yes", "--force", "--json").out)
    left = json.loads(spark("spark", "jobs", "list", "--json").out)

    assert sorted((job["key"], job["steps"], job["state"]) for job in listed if job["key"].startswith("m1")) == [
        ("m1", 3, "running"),
        ("m1/2", 1, "running"),
    ]
    assert (shown["key"], shown["steps"], shown["messages_staged"], step["steps"]) == ("m1", 3, 3, 1)
    assert (forgotten["forgotten"], forgotten["steps"]) == (True, 3)
    assert [job["key"] for job in left if job["key"].startswith("m1")] == ["m1/2"]


def test_maintenance_deletes_what_jobs_that_failed_have_stored(spark, database):
    begin(database)
    stage(database)
    database.call_atomically("end_job", job_key="monday@Sales", run="run-1", done=False)
    young = spark("queue", "maintain")

    time.sleep(0.01)  # ages are compared in milliseconds
    cleaned = clean_jobs(database, staged_kept_s=0)

    assert "stored messages" not in young.out
    assert (cleaned.staged, cleaned.sent) == (3, 0)
    assert clean_jobs(database, staged_kept_s=0, batches=2).staged == 0


def test_the_supervisor_cleans_jobs_if_the_environment_has_spark(spark, database, monkeypatch):
    begin(database)
    stage(database)
    database.call_atomically("end_job", job_key="monday@Sales", run="run-1", done=False)
    monkeypatch.setattr(
        "rowpost.transport.jobs.clean_jobs.__kwdefaults__", {"staged_kept_s": 0, "ledger_kept_s": 1000, "batches": None}
    )
    told = []
    settings = Settings(engine=spark.engine, url=spark.variables["SHOP_URL"], features=("spark",))

    task = make_job_cleaner(settings, told.append)
    task.start()
    eventually(lambda: told, "the jobs were cleaned")
    task.stop()

    assert [(event.action, event.text.split()[0]) for event in told] == [("jobs", "3")]


@pytest.mark.parametrize(
    ("features", "every", "on"), [((), 300.0, False), (("spark",), 300.0, True), (("spark",), 0.0, False)]
)
def test_the_supervisor_leaves_jobs_alone_without_spark_or_maintenance(features, every, on):
    settings = replace(
        Settings(engine="postgresql", url="nowhere", features=features),
        supervisor=SupervisorSettings(maintenance_every=every),
    )

    assert bool(make_job_cleaner(settings, lambda event: None)._queues) == on
