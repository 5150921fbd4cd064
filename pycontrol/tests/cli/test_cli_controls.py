"""rowpost queue pause, resume, limit, and rowpost workers: as processes, beside a running supervisor."""

import json
import os
import signal
from uuid import UUID

import pytest

from rowpost.cli.hangups import is_run
from rowpost.database.connection import connect_url
from tests.support.program import Program, environment_file, rowpost
from tests.support.workers import eventually

__all__ = ["rowpost"]

HANDLERS = "def place(message, connection):\n    pass\n"
WORKED = "queues: {{Sales: {{worker: {{handler: 'shop_handlers:place', limit: {limit}, peek_delay: 0.1}}}}, Billing: {{}}, error: {{}}, audit: {{}}}}\n"


@pytest.fixture
def shop(rowpost: Program) -> Program:
    """The program with a worker for Sales, and nothing waiting, paused or limited."""
    (rowpost.folder / "shop_handlers.py").write_text(HANDLERS)
    made = rowpost.with_environment(environment_file(rowpost.folder, rowpost.engine, WORKED.format(limit=2), "worked"))
    assert (made("queue", "limit", "Sales", "--clear").code, made("queue", "resume", "Sales").code) == (0, 0)
    assert made("queue", "purge", "Sales", "--yes").code == 0
    return made


def sales(program: Program) -> dict:
    return next(queue for queue in program("queue", "list", "--json").json if queue["queue"] == "Sales")


def test_a_pause_is_shown_with_its_reason_until_the_queue_is_resumed(shop: Program):
    paused = shop("queue", "pause", "Sales", "--reason", "closed")
    listed = shop("queue", "list")
    state = sales(shop)
    resumed = shop("queue", "resume", "Sales", "--json")

    assert (paused.code, paused.out) == (0, "")
    assert paused.err.startswith("Paused Sales. No supervisor receives from it now.")
    assert "NServiceBus endpoints, go on receiving" in paused.err
    assert "closed" in listed.out
    assert (state["paused"], sales(shop)["paused"], resumed.json) == (
        True,
        False,
        {"queue": "Sales", "paused": False, "limit": None},
    )


def test_a_limit_is_set_shown_and_cleared(shop: Program):
    shop("queue", "limit", "Sales", 3, "--total")
    shown = shop("queue", "list").out
    limited = sales(shop)["limit"]
    shop("queue", "limit", "Sales", "--clear")

    assert "3 workers in all supervisors together" in shown
    assert (limited, sales(shop)["limit"]) == (3, None)


@pytest.mark.parametrize("wrong", [(), ("3", "--clear"), ("--clear", "--total")])
def test_a_limit_needs_a_number_or_clear(shop: Program, wrong):
    refused = shop("queue", "limit", "Sales", *wrong)

    assert (refused.code, refused.err) == (2, "rowpost: Name a number of workers, or --clear.\n")


def test_a_queue_that_is_not_registered_is_named(shop: Program):
    refused = shop("queue", "pause", "Nowhere")

    assert refused.code != 0
    assert "Nowhere" in refused.err
    assert "Traceback" not in refused.err


def test_a_login_that_reports_very_many_workers_does_not_fill_the_list(shop: Program):
    reported = [{"queue": "Sales", "process_id": number, "state": "idle", "seconds": 0.5} for number in range(1300)]
    with connect_url(shop.engine, shop.variables["SHOP_URL"]) as database:
        for number in range(12):
            database.call(
                "report_supervisor", supervisor_id=UUID(int=number + 1), host_name=f"host-{number:02}", process_id=1, environment="e",
                rowpost_version="1", queues='["Sales"]', workers=json.dumps(reported),
            )  # fmt: skip

        listed = shop("workers")
        for number in range(12):
            database.call(
                "report_supervisor", supervisor_id=UUID(int=number + 1), host_name="", process_id=1, environment="", rowpost_version="", queues="[]",
                workers="[]", ended=True,
            )  # fmt: skip

    assert (listed.code, listed.out.count(" idle "), listed.out.count("process 1,")) == (0, 1000, 12)
    assert "more workers of this supervisor are not printed. To list them, add --json." in listed.err
    assert "are left out. Newer reports of its login have 1,000,000 characters together." in listed.err


def test_a_leased_message_is_counted_shown_with_its_worker_and_keeps_its_queue(shop: Program):
    created = shop("queue", "create", "Reports", "--lease")
    with connect_url(shop.engine, shop.variables["SHOP_URL"]) as database:
        for _ in range(2):
            database.call("send_message", "Reports", headers="")
        row = database.call_atomically("lease_messages", "Reports", count=1, owner="host/7/1", seconds=60)[0]
        renewed = json.dumps([{"token": str(row[5]), "percent": 40, "text": "page 4"}])
        database.call("renew_leases", "Reports", leases=renewed, seconds=60)
        worker = {
            "queue": "Reports",
            "process_id": 7,
            "state": "busy",
            "seconds": 1.0,
            "message": str(row[0]),
            "message_seconds": 1.0,
        }
        supervisor = {"host_name": "host", "process_id": 1, "environment": "e", "rowpost_version": "1"}
        database.call(
            "report_supervisor", supervisor_id=UUID(int=77), queues='["Reports"]', workers=json.dumps([worker]), **supervisor
        )  # fmt: skip

        measured = shop("queue", "metrics", "Reports")
        listed, documents = shop("workers"), shop("workers", "--json").json
        purged = shop("queue", "purge", "Reports", "--yes")
        refused = shop("queue", "drop", "Reports", "--yes")
        database.call("end_lease", "Reports", token=row[5])
        database.call(
            "report_supervisor", supervisor_id=UUID(int=77), queues="[]", workers="[]", ended=True, **supervisor
        )  # fmt: skip
    dropped = shop("queue", "drop", "Reports", "--yes")

    assert (created.code, "leased" in measured.out, purged.code) == (0, True, 0)
    assert "40 %, page 4" in listed.out
    assert [each["workers"][0]["progress_percent"] for each in documents if each["host"] == "host"] == [40]
    assert refused.code != 0
    assert "host/7/1 holds the message" in refused.err
    assert dropped.code == 0


def test_workers_of_a_running_supervisor_are_listed_and_paused(shop: Program):
    with shop.started("run", "--json") as run:
        found = eventually(
            lambda: [each for each in shop("workers", "--json").json if each["queues"] == ["Sales"]], "it has reported"
        )
        paused = shop("queue", "pause", "Sales").err
        events = (json.loads(line) for line in run.process.stdout)
        said = next(event for event in events if event["event"] == "Paused")
        run.interrupt()
        run.process.wait()
        listed = shop("workers").out
    shop("queue", "resume", "Sales")

    assert (found[0]["process_id"], found[0]["environment"], found[0]["gone"]) == (run.process.pid, "worked", False)
    assert f"Effective within a peek delay on {found[0]['host']}." in paused
    assert said["queue"] == "Sales"
    assert str(run.process.pid) not in listed


def test_a_hangup_reads_the_environment_again(shop: Program):
    with shop.started("run", "--json") as run:
        events = (json.loads(line) for line in run.process.stdout)
        next(event for event in events if event["event"] == "WorkerStarted")
        environment_file(shop.folder, shop.engine, WORKED.format(limit=7), "worked")
        run.process.send_signal(signal.SIGHUP)
        changed = next(event for event in events if event["event"] == "LimitChanged")
        reloaded = next(event for event in events if event["event"] == "Reloaded")
        shop.environment.write_text("no environment")
        run.process.send_signal(signal.SIGHUP)
        refused = next(event for event in events if event["event"] == "Trouble")
        run.interrupt()
        run.process.wait()

    assert (changed["limit"], reloaded["changed"]) == (7, ["Sales"])
    assert refused["error"].startswith("The environment was not read again, and everything continues as before: ")


def test_a_hangup_before_the_first_import_reads_the_environment_again_when_the_workers_run(shop: Program, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'rowpost.cli.app':\n"
        "            os.kill(os.getpid(), signal.SIGHUP)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    environment_file(shop.folder, shop.engine, WORKED.format(limit=3), "worked")
    early = shop.with_environment(shop.environment)
    early.variables["PYTHONPATH"] = os.pathsep.join(
        [str(tmp_path), *filter(None, [shop.variables.get("PYTHONPATH", "")])]
    )

    with early.started("run", "--json") as run:
        reloaded = next((line for line in run.process.stdout if b"Reloaded" in line), None)
        run.interrupt()
        code = run.process.wait()

    assert reloaded is not None
    assert code == 130


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("run", True),
        ("--env local --json run --ci", True),
        ("--env=local run", True),
        ("--env run queue list", False),
        ("bridge run shop", False),
        ("send run -", False),
        ("", False),
    ],
)
def test_only_run_outlives_a_hangup(arguments, expected):
    assert is_run(arguments.split()) is expected
