"""The record of what operators did: the procedures of the folder operations."""

from uuid import UUID

import pytest

from rowpost.errors import DatabaseError, InvalidCount, QueueNotFound

FIRST, SECOND = (UUID(int=number) for number in (1, 2))
LONG_AGO = "2020-01-01"


@pytest.fixture(autouse=True)
def nothing_recorded(sql):
    sql.run("DELETE FROM rowpost.operation_log")


def record(database, name="retry", **more):
    return database.call(
        "record_operation", **{"operation_name": name, "client": "test", "queue_name": "Sales"} | more
    )[0].operation_id


def report(database, operation, executor=FIRST, **more):
    return [
        row.is_cancelled for row in database.call("report_operation", operation_id=operation, executor=executor, **more)
    ]


def listed(database, count=10, before_id=None):
    return database.call("list_operations", count=count, before_id=before_id)


def state(database, operation):
    return next(row.operation_state for row in listed(database) if row.operation_id == operation)


def silence(sql, operation):
    sql.run(f"UPDATE rowpost.operation_log SET changed_at = '{LONG_AGO}' WHERE operation_id = ?", operation)


def test_an_operation_is_recorded_with_who_what_where_and_why(database, queue):
    operation = record(
        database,
        user_name="ada",
        message_id="m-1",
        details='{"to": "Billing"}',
        reason="mended",
        outcome="moved to Billing",
    )

    (row,) = listed(database)

    assert (row.operation_id, row.operation_name, row.operation_state, row.client, row.user_name) == (
        operation,
        "retry",
        "done",
        "test",
        "ada",
    )
    assert (row.queue_name, row.message_id, row.details, row.reason, row.outcome) == (
        "Sales",
        "m-1",
        '{"to": "Billing"}',
        "mended",
        "moved to Billing",
    )
    assert (row.done_count, row.gone_count, row.refused_count, row.total_count, row.cancelled_by) == (
        1,
        0,
        0,
        None,
        None,
    )
    assert row.login_name
    assert row.started_at == row.changed_at == row.ended_at


def test_an_operation_is_undone_with_its_transaction(database, queue):
    with pytest.raises(ZeroDivisionError), database.transaction():
        record(database)
        raise ZeroDivisionError

    assert listed(database) == []


def test_an_operation_may_concern_no_queue_in_particular_but_none_that_does_not_exist(database, queue):
    record(database, "drop saga", queue_name=None)

    with pytest.raises(QueueNotFound, match="Nowhere"):
        record(database, queue_name="Nowhere")

    assert [row.queue_name for row in listed(database)] == [None]


def test_texts_that_are_too_long_are_cut(database, queue):
    record(
        database,
        "a" * 60,
        user_name="u" * 300,
        message_id="m" * 300,
        details="d" * 5000,
        reason="r" * 500,
        outcome="o" * 1100,
    )

    (row,) = listed(database)

    assert [
        len(text) for text in (row.operation_name, row.user_name, row.message_id, row.details, row.reason, row.outcome)
    ] == [
        50,
        200,
        200,
        4000,
        400,
        1000,
    ]


def test_an_operation_that_goes_on_reports_how_far_it_is_until_it_ends(database, queue):
    operation = record(database, executor=FIRST, up_to=90)
    first = report(database, operation, total=7, done=3, gone=1, refused=1, reached=40, outcome="so far")
    (going,) = listed(database)
    second = report(database, operation, operation_state="done", done=5)
    (ended,) = listed(database)

    assert (first, second, report(database, operation)) == ([False], [False], [])
    assert (going.operation_state, going.ended_at, going.total_count, going.reached, going.up_to) == (
        "running",
        None,
        7,
        40,
        90,
    )
    assert (ended.operation_state, ended.done_count, ended.gone_count, ended.refused_count, ended.outcome) == (
        "done",
        5,
        1,
        1,
        "so far",
    )
    assert ended.ended_at == ended.changed_at >= ended.started_at


def test_only_its_own_executor_reports(database, queue):
    operation = record(database, executor=FIRST)

    assert (
        report(database, operation, SECOND, done=9),
        report(database, operation + 1),
        listed(database)[0].done_count,
    ) == ([], [], 0)


def test_an_unknown_state_is_refused(database, queue):
    operation = record(database, executor=FIRST)

    with pytest.raises(DatabaseError, match=r"(?i)check constraint"):
        report(database, operation, operation_state="asleep")


def test_a_request_to_cancel_is_seen_with_the_next_report(database, queue):
    operation = record(database, executor=FIRST)
    before = report(database, operation)
    (asked,) = database.call("cancel_operation", operation_id=operation, user_name="ada")
    again = database.call("cancel_operation", operation_id=operation)[0].cancelled
    after = report(database, operation)
    report(database, operation, operation_state="cancelled")
    (row,) = listed(database)

    assert (before, asked.cancelled, again, after) == ([False], True, True, [True])
    assert (row.operation_state, row.cancelled_by.startswith("ada (")) == ("cancelled", True)
    assert database.call("cancel_operation", operation_id=operation)[0].cancelled is False
    assert database.call("cancel_operation", operation_id=operation + 1)[0].cancelled is False


def test_an_operation_whose_process_is_silent_is_interrupted_and_cancelled_at_once(database, queue, sql):
    operation = record(database, executor=FIRST)
    silence(sql, operation)
    found = state(database, operation)
    database.call("cancel_operation", operation_id=operation)

    assert (found, state(database, operation), report(database, operation)) == ("interrupted", "cancelled", [])


def test_an_interrupted_operation_goes_on_in_one_other_process_and_no_more_in_the_first(database, queue, sql):
    operation = record(database, executor=FIRST)
    alive = database.call("resume_operation", operation_id=operation, executor=SECOND)[0].resumed
    silence(sql, operation)
    resumed = [
        database.call("resume_operation", operation_id=operation, executor=executor)[0].resumed
        for executor in (SECOND, UUID(int=3))
    ]

    assert (alive, resumed, state(database, operation)) == (False, [True, False], "running")
    assert (report(database, operation, FIRST), report(database, operation, SECOND)) == ([], [False])


@pytest.mark.parametrize("ended", ["interrupted", "cancelled", "failed"])
def test_an_operation_that_did_not_come_to_its_end_goes_on(database, queue, ended):
    operation = record(database, executor=FIRST)
    database.call("cancel_operation", operation_id=operation)
    report(database, operation, operation_state=ended)

    resumed = database.call("resume_operation", operation_id=operation, executor=SECOND)[0].resumed
    (row,) = listed(database)

    assert (resumed, row.operation_state, row.cancelled_by, row.ended_at) == (True, "running", None, None)


def test_an_operation_that_is_done_does_not_go_on(database, queue):
    single, many = record(database), record(database, executor=FIRST)
    report(database, many, operation_state="done")

    assert [
        database.call("resume_operation", operation_id=each, executor=SECOND)[0].resumed for each in (single, many)
    ] == [False, False]


def test_operations_are_listed_page_by_page_the_last_one_first(database, queue):
    operations = [record(database) for _ in range(5)]

    first = [row.operation_id for row in listed(database, 2)]
    second = [row.operation_id for row in listed(database, 10, first[-1])]

    assert first + second == operations[::-1]


@pytest.mark.parametrize("count", [0, 1001])
def test_a_page_of_operations_is_bounded(database, count):
    with pytest.raises(InvalidCount, match="between 1 and 1000"):
        listed(database, count)


def test_old_operations_are_deleted_oldest_first_but_none_that_goes_on(database, queue, sql):
    operations = [record(database) for _ in range(3)]
    going = record(database, executor=FIRST)
    for number, operation in enumerate([*operations, going]):
        sql.run(
            f"UPDATE rowpost.operation_log SET started_at = '2020-01-0{number + 1}' WHERE operation_id = ?", operation
        )
    new = record(database)

    removed = [database.call("clean_operation_log", retention_seconds=86_400, count=2)[0].removed for _ in range(3)]

    assert (removed, {row.operation_id for row in listed(database)}) == ([2, 1, 0], {going, new})


@pytest.mark.parametrize(("retention_seconds", "count"), [(-1, 1), (0, 0), (0, 4001)])
def test_a_clean_up_that_makes_no_sense_is_refused(database, retention_seconds, count):
    with pytest.raises(InvalidCount):
        database.call("clean_operation_log", retention_seconds=retention_seconds, count=count)


def test_a_queue_that_is_dropped_leaves_its_operations_on_record(database, make_queue):
    queue = make_queue()
    record(database, queue_name=queue.name)

    database.call_atomically("unregister_queue", queue_name=queue.name)

    assert [row.queue_name for row in listed(database)] == [queue.name]
