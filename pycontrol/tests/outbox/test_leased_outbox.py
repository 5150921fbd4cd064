"""Leased messages of an endpoint with an outbox, on every engine that can be reached.

Killed processes are in `test_outbox_crashes.py`.
"""

from dataclasses import replace

import pytest

from rowpost.deploy.entries import describe_queue
from rowpost.errors import DatabaseUnavailable, LeaseLost
from rowpost.recoverability.outcome import Kind
from rowpost.settings.databases import OutboxSettings
from rowpost.settings.environment import QueueSettings, SupervisorSettings, WorkerSettings
from rowpost.transport.queue import Queue
from tests.support.endpoints import OrderPlaced
from tests.support.ledgers import business, ledger, order, remembered, sent
from tests.support.outboxes import endpoint_of, handle_all, pipeline_of
from tests.support.workers import Running

__all__ = ["business", "order"]


class Desk:
    """Sales, whose messages are leased, its business database, and what became of the orders in both."""

    def __init__(self, business, order, database, open_database, business_url, sql):
        self.business, self.order, self.database, self.sql = business, order, database, sql
        self.business_url, self._open = business_url, open_database
        entry = describe_queue(QueueSettings("Sales"), database.engine)
        self.table = entry.placeholders(database.dialect)["leased_table"]
        self.made = []

    def pipeline(self, *, step=lambda name: None, then=lambda context: None, lease="commit", url=None):
        endpoint = endpoint_of("Sales", url or self.business_url, then=then, lease=lease)
        self.made.append(pipeline_of(self._open(), endpoint, step=step))
        return self.made[-1]

    def handle(self, **options):
        return handle_all(self.pipeline(**options))

    @property
    def written(self):
        return ledger(self.business)

    @property
    def sent(self):
        return sent(self.database)

    @property
    def remembered(self):
        return remembered(self.business)

    @property
    def left(self):
        """Return what waits or is leased, and what is left in both databases."""
        return (
            Queue("Sales", self.database).peek(),
            self.database.call("list_leases", "Sales", count=10),
            self.business.run("SELECT message_id FROM rowpost.outbox_operations"),
            self.sql.run("SELECT message_id FROM rowpost.dispatch"),
        )


NOTHING = (0, [], [], [])


@pytest.fixture
def desk(business, order, database, open_database, business_url, sql):
    desk = Desk(business, order, database, open_database, business_url, sql)
    sql.run(f"DELETE FROM {desk.table}")
    yield desk
    for pipeline in desk.made:
        pipeline.close()
        pipeline._mode._leasing.close()


def fails_once(at):
    """Return a step that raises when it is reached for the first time."""
    left = [at]

    def step(name):
        if left and name == left[0]:
            left.pop()
            raise ValueError("not yet")

    return step


def test_what_is_written_and_sent_commits_in_both_databases(desk):
    desk.order(1)

    assert desk.handle() == [Kind.HANDLED]
    assert (desk.written, desk.sent, desk.remembered, desk.left) == ([1], [1], ["m-1"], NOTHING)


def test_a_message_whose_handler_commits_nothing_is_remembered_too(desk):
    desk.order(1)

    assert desk.handle(lease="return") == [Kind.HANDLED]
    assert (desk.sent, desk.remembered, desk.left) == ([1], ["m-1"], NOTHING)


def test_no_connection_is_in_use_while_a_handler_works(desk):
    seen = []
    pipeline = desk.pipeline(then=lambda context: seen.extend(each.idle for each in pools))
    pools = pipeline._mode._leasing.connections, pipeline._mode._leasing.business
    desk.order(1)

    handle_all(pipeline)

    assert seen == [1, 1]


def test_a_failed_handler_leaves_nothing_and_is_counted(desk):
    desk.order(1)

    def fail(context):
        raise ValueError("no such order")

    assert desk.handle(then=fail) == [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert (desk.written, desk.sent, desk.remembered, desk.left) == ([], [], [], NOTHING)


@pytest.mark.parametrize("lease", ["commit", "return"])
def test_a_failure_before_the_commit_rolls_both_databases_back(desk, lease):
    desk.order(1)

    assert desk.handle(lease=lease, step=fails_once("before commit")) == [Kind.FAILED, Kind.HANDLED]
    assert (desk.written, desk.sent, desk.left) == ([1] if lease == "commit" else [], [1], NOTHING)


@pytest.mark.parametrize("lease", ["commit", "return"])
def test_what_is_committed_in_the_business_database_is_sent_without_the_handler(desk, lease):
    calls = []
    desk.order(1)

    kinds = desk.handle(lease=lease, step=fails_once("stored"), then=lambda context: calls.append(1))

    assert (kinds, calls) == ([Kind.FAILED, Kind.HANDLED], [1])
    assert (desk.sent, desk.remembered, desk.left) == ([1], ["m-1"], NOTHING)


def test_a_repeated_message_is_dropped(desk):
    calls = []
    desk.order(1)
    desk.order(1)

    kinds = desk.handle(then=lambda context: calls.append(1))

    assert (kinds, calls) == ([Kind.HANDLED, Kind.HANDLED], [1])
    assert (desk.written, desk.sent, desk.left) == ([1], [1], NOTHING)


def test_of_two_copies_that_are_handled_at_the_same_time_the_second_commits_nothing(desk):
    other, outcomes = desk.pipeline(), []
    desk.order(1)
    desk.order(1)

    outcome = desk.pipeline(then=lambda context: outcomes.append(other.process_one())).process_one()

    assert [each.kind for each in (outcome, *outcomes)] == [Kind.HANDLED, Kind.HANDLED]
    assert (desk.written, desk.sent, desk.left) == ([1], [1], NOTHING)
    assert desk.sql.value("SELECT COUNT(*) FROM rowpost.failure") == 0


def test_who_has_lost_the_lease_commits_nothing_in_either_database(desk):
    raised = []
    desk.order(1)

    def lose(context):
        desk.sql.run(f"UPDATE {desk.table} SET due = '2024-01-01'")
        assert desk.database.call_atomically("return_expired", "Sales", count=10)
        try:
            with context.commit():
                raise AssertionError("it was committed")
        except LeaseLost:
            raised.append(1)
            raise

    outcome = desk.pipeline(then=lose).process_one()

    assert (outcome.kind, raised) == (Kind.DEADLOCKED, [1])
    assert (desk.written, desk.sent, desk.remembered, desk.left) == ([], [], [], (1, [], [], []))


def test_a_missing_destination_ends_in_the_error_queue_and_the_handler_runs_once(desk):
    calls = []
    desk.order(1)

    def send_nowhere(context):
        calls.append(1)
        context.send(OrderPlaced(1), to="Nowhere")

    kinds = desk.handle(then=send_nowhere)

    assert (kinds, calls) == ([Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR], [1])
    assert (desk.written, desk.sent) == ([1], [])


def test_a_business_database_that_cannot_be_reached_is_no_attempt(desk):
    desk.order(1)
    nowhere = {
        "postgresql": "postgresql://nobody@127.0.0.1:1/none",
        "sqlserver": "Server=127.0.0.1,1;Database=none;UID=x;PWD=y;Encrypt=no",
    }

    with pytest.raises(DatabaseUnavailable, match="business database 'business'"):
        desk.pipeline(url=nowhere[desk.database.engine]).process_one()

    assert desk.left == (1, [], [], [])
    assert desk.sql.value("SELECT COUNT(*) FROM rowpost.failure") == 0


def test_workers_lease_messages_of_an_endpoint_with_an_outbox(desk, target):
    worker = WorkerSettings("tests.support.outboxes:leasing", concurrency=2, peek_delay=0.1)
    settings = replace(
        target.settings,
        queues=(QueueSettings("Sales", lease=True, worker=worker),),
        outboxes=(OutboxSettings("business", desk.business_url),),
        supervisor=SupervisorSettings(idle_timeout=0.3),
    )
    for number in range(8):
        desk.order(number)

    with Running(settings) as run:
        run.until(lambda: len(desk.sent) == 8, "all are handled")

    assert desk.written == desk.sent == list(range(8))
    assert desk.left[:3] == (0, [], [])
