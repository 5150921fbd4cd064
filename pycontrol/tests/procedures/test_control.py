"""What operators set for a queue, and who works: the procedures of the folder control, and what a supervisor's look shows of them."""

import json
import threading
from uuid import UUID, uuid4

import pytest

from rowpost.deploy.grants import grant
from rowpost.errors import InvalidCount, InvalidReport, PermissionDenied, QueueNotFound
from rowpost.transport.supervisors import supervisors_of
from tests.support.logins import logins

FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))
WORKER = {"queue": "Sales", "process_id": 1, "state": "idle", "seconds": 0.5}


@pytest.fixture(autouse=True)
def nobody_works(sql):
    for table in ("queue_control", "supervised_queue", "supervisor"):
        sql.run(f"DELETE FROM rowpost.{table}")


def look(queue, supervisor_id=None):
    return queue.database.call("watch_queue", queue.name, count=10, supervisor_id=supervisor_id)[0]


def controls(database):
    return [tuple(row[:5]) for row in database.call("list_controls")]


def report(database, supervisor_id, *queues, **more):
    arguments = {
        "host_name": "host-1",
        "process_id": 7,
        "environment": "test",
        "rowpost_version": "1.0",
        "workers": "[]",
    } | more
    database.call(
        "report_supervisor",
        supervisor_id=supervisor_id,
        queues=json.dumps([queue.name for queue in queues]),
        **arguments,
    )


def test_a_queue_works_as_its_environment_says(make_queue, database):
    queue = make_queue()

    assert look(queue)[2:] == (False, None, None, None)
    assert controls(database) == []


def test_a_pause_is_seen_with_its_reason_and_login_until_it_ends(make_queue, database):
    queue = make_queue()

    database.call("control_queue", queue_name=queue.name, is_paused=True, reason="closed")
    paused = look(queue)
    database.call("control_queue", queue_name=queue.name, is_paused=False)

    assert (paused.is_paused, paused.worker_limit, paused.reason, bool(paused.changed_by)) == (
        True,
        None,
        "closed",
        True,
    )
    assert (look(queue).is_paused, controls(database)) == (False, [])


def test_a_limit_outlives_a_pause_and_is_cleared_by_0(make_queue, database):
    queue = make_queue()
    database.call("control_queue", queue_name=queue.name, worker_limit=3, reason="slow printer")
    database.call("control_queue", queue_name=queue.name, is_paused=True)
    database.call("control_queue", queue_name=queue.name, is_paused=False)
    kept = controls(database)
    database.call("control_queue", queue_name=queue.name, worker_limit=0)

    assert (kept, controls(database)) == ([(queue.name, False, 3, False, None)], [])


@pytest.mark.parametrize("limit", [-1, 10_001])
def test_a_limit_that_makes_no_sense_is_refused(make_queue, database, limit):
    with pytest.raises(InvalidCount, match="between 1 and 10000"):
        database.call("control_queue", queue_name=make_queue().name, worker_limit=limit)


def test_a_queue_that_is_not_registered_is_named(database):
    with pytest.raises(QueueNotFound, match="Nowhere"):
        database.call("control_queue", queue_name="Nowhere", is_paused=True)


@pytest.mark.parametrize(("limit", "parts"), [(7, [3, 2, 2]), (3, [1, 1, 1]), (2, [1, 1, 0])])
def test_a_shared_limit_is_divided_among_the_supervisors_that_are_alive(make_queue, database, limit, parts):
    queue, other = make_queue(), make_queue()
    for supervisor_id in (FIRST, SECOND, THIRD):
        report(database, supervisor_id, queue)
    report(database, uuid4(), other)
    database.call("control_queue", queue_name=queue.name, worker_limit=limit, shared=True)

    found = [look(queue, each).worker_limit for each in (FIRST, SECOND, THIRD)]

    assert sorted(found, reverse=True) == parts
    assert look(queue).worker_limit == limit


def test_a_supervisor_that_is_silent_or_has_ended_gets_no_part(make_queue, database, sql):
    queue = make_queue()
    for supervisor_id in (FIRST, SECOND, THIRD):
        report(database, supervisor_id, queue)
    database.call("control_queue", queue_name=queue.name, worker_limit=6, shared=True)
    sql.run("UPDATE rowpost.supervisor SET seen_at = '2020-01-01' WHERE supervisor_id = ?", SECOND)
    silent = look(queue, FIRST).worker_limit
    report(database, THIRD, ended=True)

    assert (silent, look(queue, FIRST).worker_limit) == (3, 6)


def test_a_supervisor_counts_itself_before_its_first_report(make_queue, database):
    queue = make_queue()
    report(database, FIRST, queue)
    database.call("control_queue", queue_name=queue.name, worker_limit=6, shared=True)

    assert look(queue, SECOND).worker_limit == 3


def test_supervisors_are_listed_with_what_they_last_reported(make_queue, database):
    queue = make_queue()
    last = json.dumps([WORKER])
    report(database, FIRST, queue, workers="[]")
    report(database, FIRST, queue, workers=last)
    report(database, SECOND, host_name="host-2")

    first, second = database.call("list_supervisors", count=10)

    assert (first.supervisor_id, first.host_name, first.process_id, first.workers, json.loads(first.queues)) == (
        FIRST,
        "host-1",
        7,
        last,
        [queue.name],
    )
    assert (second.supervisor_id, second.host_name, second.queues) == (SECOND, "host-2", "[]")
    assert first.started_at <= first.seen_at
    assert 0 <= first.silent_ms < 60_000
    assert [row.host_name for row in database.call("list_supervisors", count=10, after_id=first.supervisor_id)] == [
        "host-2"
    ]


@pytest.mark.parametrize("count", [0, 1001])
def test_a_page_of_supervisors_is_bounded(database, count):
    with pytest.raises(InvalidCount, match="between 1 and 1000"):
        database.call("list_supervisors", count=count)


def test_supervisors_that_were_silent_for_a_day_go_when_another_starts(make_queue, database, sql):
    queue = make_queue()
    report(database, FIRST, queue)
    sql.run("UPDATE rowpost.supervisor SET seen_at = '2020-01-01'")
    kept = len(database.call("list_supervisors", count=10))
    report(database, SECOND, queue)

    assert (kept, [row.supervisor_id for row in database.call("list_supervisors", count=10)]) == (1, [SECOND])
    assert sql.value("SELECT COUNT(*) FROM rowpost.supervised_queue") == 1


def test_a_supervisor_that_starts_and_a_silent_one_that_reports_again_do_not_wait_for_one_another(
    make_queue, database, sql, open_database
):
    queue, other = make_queue(), open_database()
    report(database, FIRST, queue)
    sql.run("UPDATE rowpost.supervisor SET seen_at = '2020-01-01'")
    other.begin()
    report(other, FIRST, queue)  # locks its row of rowpost.supervisor
    starting = threading.Thread(target=lambda: report(database, SECOND, queue))

    starting.start()
    starting.join(0.5)  # it waits for that row; if it is late, the test shows less
    report(other, FIRST)  # locks its row of rowpost.supervised_queue
    other.commit()
    starting.join(30)

    assert not starting.is_alive()
    assert {row.supervisor_id for row in database.call("list_supervisors", count=10)} == {FIRST, SECOND}


@pytest.mark.parametrize(
    "forged",
    [
        {"queues": "[1]"}, {"queues": "{}"}, {"queues": "no JSON"}, {"queues": "7"}, {"queues": json.dumps(["x" * 250_000])},
        {"workers": "[{}]"}, {"workers": "[1]"}, {"workers": "{}"}, {"workers": "no JSON"}, {"workers": "[" * 100_000}, {"workers": "null"},
        {"workers": "[NaN]"}, {"workers": json.dumps([WORKER] * 1_500)}, {"workers": json.dumps([WORKER | {"queue": 1}])},
        {"workers": json.dumps([WORKER | {"seconds": "long"}])}, {"workers": json.dumps([WORKER | {"message": {}}])},
        {"workers": json.dumps([WORKER | {"message_seconds": []}])},
    ],
    ids=lambda forged: f"{forged}"[:40],
)  # fmt: skip
def test_a_report_of_another_form_is_refused(make_queue, database, forged, not_on_babelfish):
    if forged.get("workers", "").startswith("[["):
        not_on_babelfish("has no limit of nested JSON but its stack")
    arguments = {
        "host_name": "h",
        "process_id": 7,
        "environment": "test",
        "rowpost_version": "1.0",
        "workers": "[]",
        "queues": "[]",
    }
    with pytest.raises(InvalidReport, match="must have a JSON array"):
        database.call("report_supervisor", supervisor_id=FIRST, **{**arguments, **forged})

    assert database.call("list_supervisors", count=10) == []


def test_a_login_that_may_only_send_reports_no_supervisor(make_queue, database, sql, target, not_on_babelfish):
    queue = make_queue()
    with logins(sql, target.settings.url) as made:
        sender, receiver = made.make("sender"), made.make("receiver")
        grant(database, sender, send_to=[queue.name])
        grant(database, receiver, receive_from=[queue.name])
        with made.open(receiver) as connection:
            report(connection, FIRST, queue)
        with made.open(sender) as connection, pytest.raises(PermissionDenied, match="may not receive from any queue"):
            report(connection, SECOND)

    assert [row.supervisor_id for row in database.call("list_supervisors", count=10)] == [FIRST]


def test_a_login_has_a_thousand_supervisors_at_most(make_queue, database, sql):
    if database.engine != "postgresql":
        pytest.skip("the rows are made by generate_series")
    columns = "supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers"
    sql.run(
        f"INSERT INTO rowpost.supervisor ({columns}) SELECT gen_random_uuid(), 'h', 1, 'e', '1', login, now(), now() - interval '1 hour', '[]', '[]'"
        " FROM generate_series(1, 1010), (VALUES (session_user::text), ('another')) AS l (login)"
    )
    report(database, FIRST, make_queue())

    counts = dict(sql.run("SELECT login_name = session_user, count(*) FROM rowpost.supervisor GROUP BY 1"))
    assert counts == {True: 1000, False: 1010}
    assert FIRST in {each.supervisor_id for each in supervisors_of(database)}


def test_of_a_login_only_the_newest_reports_up_to_a_million_characters_are_read(make_queue, database, sql, target):
    if target.babelfish:
        pytest.skip("Babelfish: DATALENGTH counts the bytes of UTF-8; SQL Server counts two for each character")
    workers = json.dumps([WORKER | {"message": "x" * 99_800}])
    for number in range(12):
        report(
            database, UUID(int=20 - number), *([make_queue()] if number == 11 else []), workers=workers
        )  # the newest has the lowest id
    sql.run("UPDATE rowpost.supervisor SET seen_at = '2020-01-01' WHERE supervisor_id = ?", UUID(int=15))
    columns = "supervisor_id, host_name, process_id, environment, rowpost_version, login_name, started_at, seen_at, queues, workers"
    sql.run(
        f"INSERT INTO rowpost.supervisor ({columns}) VALUES (?, 'h', 1, 'e', '1', 'another', '2020-01-01', '2020-01-01', '[]', ?)",
        SECOND, json.dumps([WORKER]),
    )  # fmt: skip

    found = {each.supervisor_id: each for each in supervisors_of(database)}

    assert len(found) == 13
    assert {key.int for key, each in found.items() if each.too_long and not each.workers and not each.queues} == {
        15,
        20,
    }
    assert found[SECOND].workers
    assert len(found[UUID(int=9)].queues) == 1


def test_a_queue_that_is_dropped_takes_what_was_set_for_it_along(make_queue, database, sql):
    queue = make_queue()
    report(database, FIRST, queue)
    database.call("control_queue", queue_name=queue.name, is_paused=True)

    database.call_atomically("unregister_queue", queue_name=queue.name)

    assert [sql.value(f"SELECT COUNT(*) FROM rowpost.{table}") for table in ("queue_control", "supervised_queue")] == [
        0,
        0,
    ]
