"""Bulk operations: each message once, on record, cancelled and gone on with, whoever is killed and whoever acts beside it."""

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rowpost.errors import DatabaseError, InvalidMessage, OperationNotFound, OperationTaken, QueueNotFound
from rowpost.operations.bulk import BulkOperation, FailedSelection, preview
from rowpost.operations.log import Operator, cancel_operation, clean_operation_log, find_operation, list_operations
from rowpost.transport.changes import FailureChange
from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.transport.failure_groups import scan
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from tests.support.dashboard import failed_headers

ALL = FailedSelection("error")
ADA = Operator("test", "ada")


@pytest.fixture
def error(database, sql):
    """The queue error, empty, beside empty queues Sales and Billing, and nothing on record."""
    for name in ("error", "Sales", "Billing"):
        sql.empty(name)
    sql.run("DELETE FROM rowpost.operation_log")
    return Queue("error", database)


def fail(error, count, text="slow", /, **more):
    error.send_many(OutgoingMessage(b"%d" % number, failed_headers(text, **more)) for number in range(count))


def bodies(database, queue):
    return [int(message.body) for message in Queue(queue, database).browse(1000)]


def silence(sql):
    """Let the process of each operation have been silent for a long time."""
    sql.run("UPDATE rowpost.operation_log SET changed_at = '2020-01-01'")


def test_a_preview_counts_by_cause_shows_examples_and_changes_nothing(error, database):
    fail(error, 30)
    fail(error, 7, "wrong", queue="Billing", error="Other")

    found = preview(database, FailedSelection("error", Filter(exception="slow")))
    whole = preview(database, ALL)

    assert (found.matched, len(found.messages), found.read, found.more) == (30, 5, 37, False)
    assert [(group.cause.failed_in, group.count) for group in whole.groups] == [("Sales", 30), ("Billing", 7)]
    assert (error.peek(), list_operations(database)) == (37, [])


def test_a_retry_of_all_that_match_is_on_record_with_its_counts(error, database):
    fail(error, 230)
    fail(error, 3, "wrong")
    seen = []

    operation = BulkOperation.begin(
        database,
        ADA,
        FailedSelection("error", Filter(exception="slow", since=datetime(2026, 1, 1, tzinfo=UTC))),
        FailureChange("retry"),
        "mended",
    )
    state = operation.run(seen.append)
    (found,) = list_operations(database)

    assert (state, bodies(database, "Sales"), error.peek()) == ("done", list(range(230)), 3)
    assert (found.name, found.state, found.who.startswith("ada ("), found.client, found.queue, found.reason) == (
        "retry-all",
        "done",
        True,
        "test",
        "error",
        "mended",
    )
    assert (found.total, found.done, found.gone, found.refused, found.ended_at is not None) == (230, 230, 0, 0, True)
    assert found.details == {"exception": "slow", "since": "2026-01-01T00:00:00+00:00"}
    assert [each.finished for each in seen if each.total is not None] == [0, 100, 200, 230]


def test_what_failed_before_a_time_or_does_not_say_when_is_left_out(error, database):
    fail(error, 2)
    error.send(b"", failed_headers() | {"NServiceBus.TimeOfFailure": "2026-06-01 00:00:00:000000 Z"})
    error.send(b"", failed_headers() | {"NServiceBus.TimeOfFailure": "yesterday"})

    assert preview(database, FailedSelection("error", Filter(since=datetime(2026, 5, 1, tzinfo=UTC)))).matched == 1


def test_messages_are_discarded_and_moved(error, database):
    fail(error, 5, "wrong")
    fail(error, 4)

    BulkOperation.begin(
        database, ADA, FailedSelection("error", Filter(exception="wrong")), FailureChange("discard"), "test data"
    ).run()
    BulkOperation.begin(database, ADA, ALL, FailureChange("move", to="Billing")).run()

    assert (error.peek(), bodies(database, "Sales"), bodies(database, "Billing")) == (0, [], [0, 1, 2, 3])
    assert [(operation.name, operation.done, operation.reason, operation.details) for operation in list_operations(database)] == [
        ("move-all", 4, None, {"to": "Billing"}), ("discard-all", 5, "test data", {"exception": "wrong"})
    ]  # fmt: skip


def test_an_edit_sets_and_removes_headers_and_its_values_are_not_on_record(error, database, sql):
    fail(error, 3)
    before = {message.message_id for message in error.browse()}

    BulkOperation.begin(
        database, ADA, ALL, FailureChange("edit", headers={"Shop.Tenant": "s3cret", "NServiceBus.TimeSent": None})
    ).run()
    edited = Queue("Sales", database).browse()
    (operation,) = list_operations(database)

    assert {message.headers.get("Shop.Tenant") for message in edited} == {"s3cret"}
    assert not any(
        "NServiceBus.TimeSent" in message.headers or "NServiceBus.FailedQ" in message.headers for message in edited
    )
    assert all("ServiceControl.EditOf" in message.headers for message in edited)
    assert before.isdisjoint(message.message_id for message in edited)
    assert (operation.details["sets"], operation.details["removes"]) == (["Shop.Tenant"], ["NServiceBus.TimeSent"])
    assert "s3cret" not in repr(sql.run("SELECT * FROM rowpost.operation_log"))


def test_only_what_cannot_be_changed_stays_and_the_record_says_why(error, database):
    fail(error, 120)
    error.send(b"", failed_headers(queue="Nowhere"))
    error.send(b"", "{")

    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("retry"))
    state = operation.run()
    (found,) = list_operations(database)

    assert (state, error.peek(), len(bodies(database, "Sales"))) == ("done", 2, 120)
    assert (found.done, found.refused, found.finished, found.total) == (120, 2, 122, 122)
    assert ("Nowhere" in found.outcome, found.outcome.endswith("1 more stay."), len(operation.refusals)) == (
        True,
        True,
        2,
    )


def test_an_operation_on_a_cause_ends_where_it_was_seen(error, database):
    fail(error, 3)
    fail(error, 2, error="Other")
    seen = scan(ErrorQueue(database), show=0)
    fail(error, 4)

    BulkOperation.begin(
        database,
        ADA,
        FailedSelection("error", cause=seen.groups[0].cause.key, up_to=seen.up_to),
        FailureChange("retry"),
    ).run()

    assert (len(bodies(database, "Sales")), error.peek()) == (3, 6)


def test_what_fails_again_meanwhile_is_not_changed_twice(error, database):
    fail(error, 250, queue="error")

    BulkOperation.begin(database, ADA, ALL, FailureChange("retry")).run()

    assert (error.peek(), find_operation(database, list_operations(database)[0].number).done) == (250, 250)


def test_what_cannot_be_read_is_not_on_record(error, database, sql):
    error.send(b"s3cret", "s3cret")
    error.send(b"s3cret", '{"Shop.Card": ["s3cret"]}')

    for change in (FailureChange("retry"), FailureChange("edit", headers={"Shop.Tenant": "b"})):
        BulkOperation.begin(database, ADA, ALL, change).run()

    assert [
        (operation.done, operation.refused, "cannot be read" in operation.outcome)
        for operation in list_operations(database)
    ] == [(0, 2, True)] * 2
    assert "s3cret" not in repr(sql.run("SELECT * FROM rowpost.operation_log"))


@pytest.mark.parametrize("change", [("move",), ("edit",), ("burn",)])
def test_a_change_that_says_too_little_is_refused(change):
    with pytest.raises(InvalidMessage):
        FailureChange(*change)


def test_an_operation_on_a_queue_that_does_not_exist_is_refused_and_not_on_record(error, database):
    with pytest.raises(QueueNotFound, match="Nowhere"):
        BulkOperation.begin(database, ADA, ALL, FailureChange("move", to="Nowhere"))
    with pytest.raises(QueueNotFound, match="Nix"):
        BulkOperation.begin(database, ADA, FailedSelection("Nix"), FailureChange("retry"))

    assert list_operations(database) == []


def test_a_request_to_cancel_from_another_session_ends_an_operation_after_its_batch(error, database, open_database):
    fail(error, 350)
    other = open_database()
    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("retry"))

    state = operation.run(
        lambda counted: cancel_operation(other, counted.number, "bob") if counted.done == 100 else None
    )
    found = find_operation(database, operation.counts.number)

    assert (state, found.state, found.cancelled_by.startswith("bob (")) == ("cancelled", "cancelled", True)
    assert (found.done, found.total, error.peek()) == (200, 350, 150)


def test_an_operation_that_is_stopped_goes_on_where_it_was(error, database):
    fail(error, 350)
    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("retry"))
    first = operation.run(stop=lambda: "interrupted" if operation.counts.done else None)
    fail(error, 5)
    shown = find_operation(database, operation.counts.number)

    second = BulkOperation.resume(database, operation.counts.number).run()
    found = find_operation(database, operation.counts.number)

    assert (first, shown.state, shown.done, second) == ("interrupted", "interrupted", 100, "done")
    assert (found.state, found.done, found.total, found.finished) == ("done", 350, 350, 350)
    assert (bodies(database, "Sales"), error.peek()) == (list(range(350)), 5)


def test_a_process_that_lost_its_operation_changes_nothing_more(error, database, open_database, sql):
    fail(error, 300)
    other, results = open_database(), []
    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("retry"))

    def take(counted):
        if counted.done == 100:
            silence(sql)
            results.append(BulkOperation.resume(other, counted.number))

    with pytest.raises(OperationTaken, match="Another process"):
        operation.run(take)
    left = error.peek()
    state = results[0].run()

    assert (left, state, bodies(database, "Sales")) == (200, "done", list(range(300)))
    assert find_operation(database, operation.counts.number).done == 300


def test_an_operation_that_goes_on_or_is_done_or_is_single_cannot_be_taken(error, database):
    fail(error, 1)
    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("retry"))
    with pytest.raises(OperationTaken, match="goes on"):
        BulkOperation.resume(database, operation.counts.number)
    operation.run()
    with pytest.raises(OperationTaken, match="is done"):
        BulkOperation.resume(database, operation.counts.number)
    with ADA.operation(database, "pause", "Sales"):
        pass
    with pytest.raises(OperationTaken, match="Repeat it"):
        BulkOperation.resume(database, list_operations(database)[0].number)
    with pytest.raises(OperationNotFound):
        BulkOperation.resume(database, 10**9)


def test_an_edit_goes_on_with_the_same_values_only(error, database):
    fail(error, 150)
    headers = {"Shop.Tenant": "b", "Shop.Old": None}
    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("edit", headers=headers))
    operation.run(stop=lambda: "cancelled" if operation.counts.done else None)

    for wrong in ({}, {"Shop.Tenant": "c"}):
        with pytest.raises(InvalidMessage, match=r"Shop\.Tenant"):
            BulkOperation.resume(database, operation.counts.number, wrong)
    state = BulkOperation.resume(database, operation.counts.number, {"Shop.Tenant": "b"}).run()

    assert (state, {message.headers.get("Shop.Tenant") for message in Queue("Sales", database).browse(500)}) == (
        "done",
        {"b"},
    )
    assert len(bodies(database, "Sales")) == 150


def test_two_operations_on_the_same_messages_at_once_change_each_once(error, open_database, database, needs_readpast):
    fail(error, 600)
    operations = [
        BulkOperation.begin(
            open_database(), Operator("test", name), replace(ALL, wanted=wanted), FailureChange("retry")
        )
        for name, wanted in (("a", Filter()), ("b", Filter(exception="slow")))
    ]
    both_have_read = threading.Barrier(2, timeout=60)

    def after_reading(counted):
        if counted.total is not None and not counted.finished:
            both_have_read.wait()

    threads = [threading.Thread(target=operation.run, args=(after_reading,)) for operation in operations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    found = list_operations(database)

    assert (sorted(bodies(database, "Sales")), error.peek()) == (list(range(600)), 0)
    assert (
        sum(operation.done for operation in found),
        [operation.finished for operation in found],
        {operation.state for operation in found},
    ) == (
        600,
        [600, 600],
        {"done"},
    )


def test_an_operation_and_its_line_commit_together(error, database):
    fail(error, 1)
    row = error.browse()[0].row_version

    with pytest.raises(ZeroDivisionError), ADA.operation(database, "discard", "error", reason="test"):
        error.receive_one(row)
        raise ZeroDivisionError
    kept = error.peek()
    with ADA.operation(database, "discard", "error", reason="test", row=row) as noted:
        noted.message_id = "m-1"
        error.receive_one(row)

    assert (kept, error.peek()) == (1, 0)
    assert [
        (operation.name, operation.message_id, operation.reason, operation.details, operation.done)
        for operation in list_operations(database)
    ] == [("discard", "m-1", "test", {"row": row}, 1)]


def test_the_record_is_kept_for_ninety_days(error, database, sql):
    for _ in range(3):
        with ADA.operation(database, "pause", "Sales"):
            pass
    sql.run(
        "UPDATE rowpost.operation_log SET started_at = '2020-01-01' WHERE operation_id < ?",
        list_operations(database)[0].number,
    )

    assert (clean_operation_log(database), len(list_operations(database))) == (2, 1)


def test_an_operation_that_an_error_of_its_caller_ends_is_interrupted_and_its_open_part_undone(error, database):
    fail(error, 250)
    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("retry"))

    def break_off(counted):
        if counted.done == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        operation.run(break_off)
    found = find_operation(database, operation.counts.number)

    assert (found.state, found.done, found.may_go_on, error.peek()) == ("interrupted", 100, True, 150)


def test_an_operation_that_the_server_cannot_execute_has_failed_and_goes_on_when_that_is_mended(
    error, database, target, sql
):
    fail(error, 150)
    operation = BulkOperation.begin(database, ADA, ALL, FailureChange("retry"))
    table, postgresql = sql.table("Sales"), target.settings.engine == "postgresql"
    sql.run(
        f"ALTER TABLE {table} ADD CONSTRAINT no_more CHECK (1 = 0) NOT VALID"
        if postgresql
        else f"ALTER TABLE {table} WITH NOCHECK ADD CONSTRAINT no_more CHECK (1 = 0)"
    )

    try:
        with pytest.raises(DatabaseError):
            operation.run()
    finally:
        sql.run(f"ALTER TABLE {table} DROP CONSTRAINT no_more")
    failed, left = find_operation(database, operation.counts.number), error.peek()
    BulkOperation.resume(database, operation.counts.number).run()

    assert (failed.state, failed.done, left) == ("failed", 0, 150)
    assert (
        failed.outcome == "DatabaseError: the log or the output of its process says more."
    )  # the server's words may hold values
    assert (bodies(database, "Sales"), find_operation(database, operation.counts.number).state) == (
        list(range(150)),
        "done",
    )
