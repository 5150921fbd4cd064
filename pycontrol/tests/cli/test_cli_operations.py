"""Bulk operations and the operation log, as processes: cancelled by a key or by another process, killed, and gone on with."""

import json
import os
import re
import signal
from collections import Counter
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from rowpost.database.connection import connect_url
from rowpost.operations.log import find_operation, list_operations
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage, encode_headers
from tests.support.dashboard import Browser, failed_headers
from tests.support.probe import probe_for
from tests.support.program import Program, environment_file, program
from tests.support.workers import eventually

__all__ = ["program"]

MANY = 4_000
INTERRUPTED = 130


@pytest.fixture
def database(program: Program):
    with connect_url("postgresql", program.variables["SHOP_URL"]) as database:
        yield database


@pytest.fixture
def sql(database):
    return probe_for(database)


@pytest.fixture
def error(database, sql) -> Queue:
    """The queue error, empty, beside empty queues, and nothing on record."""
    for name in ("error", "Sales", "Billing"):
        sql.empty(name)
    sql.run("DELETE FROM rowpost.operation_log")
    return Queue("error", database)


def fail(error, count, text="slow", /, **more):
    error.send_many(OutgoingMessage(b"%d" % number, failed_headers(text, **more)) for number in range(count))


def bodies(database, queue) -> Counter:
    found, at = Counter(), None
    while page := Queue(queue, database).browse(1000, at):
        found.update(int(message.body) for message in page)
        at = page[-1].row_version
    return found


def in_the_middle(database):
    """Wait until an operation has changed some messages, and is far from its end; return its number."""
    operation = eventually(
        lambda: next(
            (operation for operation in list_operations(database) if operation.goes_on and operation.done), None
        ),
        "an operation is in the middle",
    )
    return operation.number


@contextmanager
def held(program: Program, queue: str):
    """Keep everybody from a queue's table."""
    with connect_url("postgresql", program.variables["SHOP_URL"]) as holder, holder.transaction():
        holder.driver_connection.execute(f'LOCK TABLE "{queue}" IN ACCESS EXCLUSIVE MODE')
        yield


def silence(sql):
    """Let the process of each operation have been silent for a long time."""
    sql.run("UPDATE rowpost.operation_log SET changed_at = '2020-01-01' WHERE operation_state = 'running'")


# ------------------------------------------------------------------ list and show
def test_a_message_has_one_id_in_the_list_in_show_and_in_the_record(program: Program, error, database):
    fail(error, 2)
    first, second = program("errors", "list", "--json").lines

    listed = program("errors", "list").out
    by_id, by_row = program("errors", "show", first["message_id"]), program("errors", "show", first["row_version"])
    document = program("errors", "show", first["message_id"], "--json").json
    retried = program("errors", "retry", first["message_id"], "--json").json
    shown = program("errors", "show", second["row_version"]).out

    assert first["message_id"] in listed
    assert (by_id.out, document["message_id"], document["row_version"]) == (
        by_row.out,
        first["message_id"],
        first["row_version"],
    )
    assert f"message {second['message_id']}" in shown
    assert (retried["message_id"], list_operations(database)[0].message_id) == (
        first["message_id"],
        first["message_id"],
    )


def test_the_log_names_a_message_by_the_id_that_errors_show_takes(program: Program, error, database):
    (program.folder / "failing_handlers.py").write_text(
        "def fail(message, connection):\n    raise ValueError('no such order')\n"
    )
    worked = (
        "queues: {Sales: {worker: {handler: 'failing_handlers:fail', limit: 1}}, Billing: {}, error: {}, audit: {}}\n"
    )
    failing = program.with_environment(environment_file(program.folder, program.engine, worked, "failing"))
    Queue("Sales", database).send(b"{}", {"NServiceBus.MessageId": "order-4711"})
    Queue("Sales", database).send(b"{}", {})
    Queue("Sales", database).send(b"poison", "{broken")

    log = failing("run", "--until-idle").out
    logged = re.findall(r"message (\S+) moved to the error queue", log)
    shown = [failing("errors", "show", each) for each in logged]
    known = {message.message_id for message in ErrorQueue(database).list()}

    assert (len(logged), [each.code for each in shown]) == (3, [0, 0, 0]), log
    assert ("order-4711" in logged, set(logged)) == (True, known)


def test_failures_are_counted_by_cause_and_a_cause_selects_them(program: Program, error):
    fail(error, 3)
    fail(error, 2, "wrong", error="Other", queue="Billing", kind="Shop.Messages.ChargeCard")

    shown = program("errors", "list", "--group")
    groups = program("errors", "list", "--group", "--json").lines
    of_type = program("errors", "list", "--group", "--type", "chargecard", "--json").lines
    of_cause = program("errors", "list", "--cause", groups[1]["cause"], "--json").lines
    listed = program("errors", "list", "--limit", "1")

    assert [(each["count"], each["failed_queue"], each["exception"]) for each in groups] == [
        (3, "Sales", "slow"),
        (2, "Billing", "wrong"),
    ]
    assert "5 messages of 5 in error match, of 2 causes." in shown.err
    assert ([each["count"] for each in of_type], [each["exception"] for each in of_cause]) == ([2], ["wrong", "wrong"])
    assert "error has 5 messages" in listed.err


def test_only_what_failed_since_a_time_is_listed_and_a_wrong_time_is_refused(program: Program, error):
    fail(error, 1)
    error.send(b"1", failed_headers() | {"NServiceBus.TimeOfFailure": "2026-06-01 00:00:00:000000 Z"})

    since = program("errors", "list", "--since", "2026-05-30T00:00Z", "--json").lines
    wrong = program("errors", "list", "--since", "soon")

    assert ([each["failed_at"][:10] for each in since], wrong.code) == (["2026-06-01"], 2)
    assert "'soon' is no time" in wrong.err


# ------------------------------------------------------------------ bulk operations
def test_a_dry_run_shows_what_would_be_changed_and_changes_nothing(program: Program, error, database):
    fail(error, 7)
    fail(error, 1, "wrong")

    shown = program("errors", "discard-all", "--reason", "test data", "--exception", "slow", "--dry-run")
    document = program("errors", "retry-all", "--dry-run", "--json").json

    assert (shown.code, shown.out.count("for example row")) == (0, 5)
    assert "Discard would change 7 messages of 8 in error (7 from Sales). Nothing was changed." in shown.err
    assert (document["matched"], len(document["groups"]), len(document["examples"])) == (8, 1, 5)
    assert (error.peek(), list_operations(database)) == (8, [])


def test_messages_are_discarded_moved_and_edited_and_each_operation_is_on_record(
    program: Program, error, database, sql
):
    fail(error, 3, "wrong")
    fail(error, 4)
    unsaid, asked = program("errors", "discard-all", "--yes"), program("errors", "discard-all", "--reason", "test data")
    discarded = program(
        "errors", "discard-all", "--exception", "wrong", "--reason", "test data", "--yes", "--json"
    ).json
    moved = program("errors", "move-all", "Billing", "--yes", "--json").json
    nowhere = program("errors", "move-all", "Nowhere", "--yes")
    fail(error, 2)
    elsewhere = program("errors", "move-all", "Nowhere", "--yes")
    headless, valueless = (
        program("errors", "edit-all", "--yes"),
        program("errors", "edit-all", "--header", "Shop.Tenant", "--yes"),
    )
    edited = program(
        "errors",
        "edit-all",
        "--header",
        "Shop.Tenant=s3cret",
        "--remove-header",
        "NServiceBus.TimeSent",
        "--yes",
        "--json",
    ).json
    nothing = program("errors", "retry-all", "--yes")

    assert [each.code for each in (unsaid, asked, nowhere, elsewhere, headless, valueless, nothing)] == [
        2,
        2,
        0,
        6,
        2,
        2,
        0,
    ]
    assert (discarded["discarded"], moved["moved"], edited["edited"], nothing.err) == (3, 4, 2, "Retried 0 messages.\n")
    assert (bodies(database, "Billing"), error.peek()) == (Counter(range(4)), 0)
    assert all(
        message.headers["Shop.Tenant"] == "s3cret" and "NServiceBus.TimeSent" not in message.headers
        for message in Queue("Sales", database).browse()
    )
    assert [(operation.number, operation.name, operation.done, operation.reason) for operation in list_operations(database)] == [
        (edited["operation"], "edit-all", 2, None), (moved["operation"], "move-all", 4, None), (discarded["operation"], "discard-all", 3, "test data")
    ]  # fmt: skip
    assert "s3cret" not in repr(sql.run("SELECT * FROM rowpost.operation_log"))


def test_ctrl_c_cancels_an_operation_in_order_and_it_goes_on(program: Program, error, database):
    fail(error, MANY)

    with program.started("errors", "retry-all", "--yes") as started:
        number = in_the_middle(database)
        started.interrupt()
        ended = started.ended()
    operation = find_operation(database, number)
    left = error.peek(10_000)
    resumed = program("operations", "resume", number, "--json")

    assert (ended.code, operation.state, left) == (INTERRUPTED, "cancelled", MANY - operation.done)
    assert (
        f"operation {number} retried {operation.done:,} messages; the rest is still in error. To go on: rowpost operations resume {number}"
        in ended.err
    )
    assert (resumed.code, resumed.json["retried"], resumed.json["state"]) == (0, MANY, "done")
    assert (bodies(database, "Sales"), error.peek()) == (Counter(range(MANY)), 0)


def test_another_process_cancels_an_operation(program: Program, error, database):
    fail(error, MANY)

    with program.started("errors", "retry-all", "--yes") as started:
        number = in_the_middle(database)
        asked = program("operations", "cancel", number)
        ended = started.ended()
    again = program("operations", "cancel", number)
    operation = find_operation(database, number)

    assert (asked.code, ended.code, again.code, operation.state) == (0, 1, 1, "cancelled")
    assert "The operation was cancelled" in ended.err
    assert operation.done < MANY
    assert bodies(database, "Sales") + bodies(database, "error") == Counter(range(MANY))


def test_an_operation_whose_process_is_killed_is_interrupted_and_goes_on_without_a_message_lost_or_doubled(
    program: Program, error, database, sql
):
    fail(error, MANY)

    with program.started("errors", "retry-all", "--yes") as started:
        number = in_the_middle(database)
        started.process.send_signal(signal.SIGKILL)
        started.ended()
    eventually(
        lambda: sql.value("SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'rowpost command line'") == 0,
        "its session has ended",
    )
    operation, moved, left = find_operation(database, number), bodies(database, "Sales"), bodies(database, "error")
    alive = program("operations", "resume", number)
    silence(sql)
    shown = program("operations", "show", number)
    resumed = program("operations", "resume", number)

    assert 0 < operation.done < MANY
    assert (moved.total(), moved + left) == (operation.done, Counter(range(MANY)))
    assert (alive.code, "reported less than 30 seconds ago" in alive.err) == (7, True)
    assert "interrupted" in shown.out
    assert f"rowpost operations resume {number}" in shown.err
    assert (resumed.code, bodies(database, "Sales"), error.peek()) == (0, Counter(range(MANY)), 0)
    assert (find_operation(database, number).state, find_operation(database, number).done) == ("done", MANY)


def test_two_processes_on_overlapping_filters_of_which_one_is_killed_change_each_message_once(
    program: Program, error, database, sql
):
    fail(error, MANY)
    sql.run(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END'"
    )
    for queue in (
        "Sales",
        "Billing",
    ):  # neither is at its end, or has left nothing to the other one, before the first one is killed
        sql.run(f'CREATE TRIGGER slow AFTER INSERT ON "{queue}" FOR EACH STATEMENT EXECUTE FUNCTION slow()')

    waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'rowpost command line' AND wait_event_type = 'Lock'"
    with ExitStack() as stack:
        with held(program, "error"):
            first = stack.enter_context(program.started("errors", "retry-all", "--yes"))
            second = stack.enter_context(
                program.started("errors", "move-all", "Billing", "--exception", "slow", "--yes")
            )
            eventually(lambda: sql.value(waiting) == 2, "both wait to read the error queue")
        eventually(
            lambda: any(
                operation.name == "retry-all" and operation.goes_on and operation.done
                for operation in list_operations(database)
            ),
            "the first one is in the middle",
        )
        first.process.send_signal(signal.SIGKILL)
        first.ended()
        sql.run("DROP FUNCTION slow() CASCADE")
        ended = second.ended()
    killed = next(operation for operation in list_operations(database) if operation.name == "retry-all")
    silence(sql)
    resumed = program("operations", "resume", killed.number)

    assert (ended.code, killed.state, resumed.code) == (0, "running", 0)
    assert (bodies(database, "Sales") + bodies(database, "Billing"), error.peek()) == (Counter(range(MANY)), 0)
    assert sum(operation.done for operation in list_operations(database)) == MANY


def test_an_operation_of_a_dashboard_that_is_killed_is_interrupted_and_goes_on_in_the_next_one(
    program: Program, error, database, sql
):
    fail(error, MANY)

    with program.started("dashboard", "--port", "0", "--json") as started:
        url = json.loads(started.process.stdout.readline())["url"]
        eventually(lambda: httpx.get(f"{url}api/v1/operations", timeout=30).status_code == 200, "the dashboard answers")
        with Browser(base_url=url.rstrip("/"), timeout=30) as client:
            assert (
                client.submit(
                    "/failed/all?operation=retry", "/failed/all", operation="retry", queue="error"
                ).status_code
                == 303
            )
        number = in_the_middle(database)
        os.kill(started.process.pid, signal.SIGKILL)
        started.ended()
    eventually(
        lambda: (
            sql.value("SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'rowpost dashboard operation'")
            == 0
        ),
        "its session has ended",
    )
    moved, left, operation = bodies(database, "Sales"), bodies(database, "error"), find_operation(database, number)
    silence(sql)

    with program.started("dashboard", "--port", "0", "--json") as started:
        url = json.loads(started.process.stdout.readline())["url"]
        eventually(lambda: httpx.get(f"{url}api/v1/operations", timeout=30).status_code == 200, "the dashboard answers")
        with Browser(base_url=url.rstrip("/"), timeout=30) as client:
            page = client.text(f"/operation/{number}")
            client.submit(f"/operation/{number}", f"/operation/{number}/resume")
        eventually(lambda: find_operation(database, number).state == "done", "the operation has ended")

    assert (moved.total(), moved + left, "interrupted" in page) == (operation.done, Counter(range(MANY)), True)
    assert (bodies(database, "Sales"), error.peek(), find_operation(database, number).done) == (
        Counter(range(MANY)),
        0,
        MANY,
    )


# ------------------------------------------------------------------ the record
def test_each_operation_of_the_command_line_is_on_record(program: Program, error, database):
    fail(error, 4)
    rows = [message.row_version for message in error.browse()]
    (program.folder / "body.json").write_bytes(b"{}")
    for number in range(2):
        database.call(
            "delay_message",
            "Sales",
            headers=encode_headers({"NServiceBus.MessageId": f"m-{number}"}),
            body=b"{}",
            delay_ms=3_600_000,
        )
    first, second = (each["key"] for each in program("delayed", "list", "Sales", "--json").lines[:2])

    for arguments in (
        ("errors", "retry", rows[0]), ("errors", "retry", rows[1], "--to", "Billing", "--reason", "wrong queue"), ("errors", "edit", rows[2], "--body", "body.json"),
        ("errors", "discard", rows[3], "--reason", "test data", "--yes"), ("queue", "purge", "Sales", "--yes"), ("queue", "pause", "Sales", "--reason", "closed"),
        ("queue", "resume", "Sales"), ("queue", "limit", "Sales", 3), ("queue", "limit", "Sales", "--clear"), ("delayed", "move", "Sales", second, "3h"),
        ("delayed", "send-now", "Sales", first),
    ):  # fmt: skip
        assert program(*arguments).code == 0, arguments
    key = next(
        each["key"] for each in program("delayed", "list", "Sales", "--json").lines if each["message_id"] == "m-1"
    )
    cancelled = program("delayed", "cancel", "Sales", key, "--reason", "not needed", "--yes")
    refused = program("errors", "retry", "999999")
    found = list_operations(database)[::-1]

    assert (cancelled.code, refused.code) == (0, 6)
    assert [(operation.name, operation.queue, operation.reason) for operation in found] == [
        ("retry", "error", None), ("move", "error", "wrong queue"), ("edit", "error", None), ("discard", "error", "test data"), ("purge", "Sales", None),
        ("pause", "Sales", "closed"), ("resume", "Sales", None), ("limit", "Sales", None), ("limit", "Sales", None), ("move-delayed", "Sales", None),
        ("send-now", "Sales", None), ("cancel-delayed", "Sales", "not needed"),
    ]  # fmt: skip
    assert {(operation.client, operation.user, operation.state) for operation in found} == {
        ("command line", None, "done")
    }
    assert (found[1].details["to"], found[4].done, found[7].details["limit"], found[11].message_id) == (
        "Billing",
        2,
        3,
        "m-1",
    )


def test_the_record_is_listed_shown_and_cleaned(program: Program, error, database, sql):
    for number in range(3):
        program("queue", "pause", "Sales", "--reason", f"closed {number}")
    program("queue", "resume", "Sales")
    operations = [operation.number for operation in list_operations(database)]

    listed = program("operations", "list", "--count", 2)
    rest = program("operations", "list", "--before", operations[1], "--json").lines
    shown, document = (
        program("operations", "show", operations[1]),
        program("operations", "show", operations[1], "--json").json,
    )
    missing = program("operations", "show", 10**9)
    sql.run("UPDATE rowpost.operation_log SET started_at = '2020-01-01' WHERE operation_id < ?", operations[1])
    cleaned = program("operations", "clean", "--json").json

    assert (f"--before {operations[1]}" in listed.err, [each["number"] for each in rest]) == (True, operations[2:])
    assert all(text in shown.out for text in ("pause", "done", "closed 2", "command line"))
    assert (document["name"], document["reason"], missing.code, cleaned) == ("pause", "closed 2", 6, {"deleted": 2})
