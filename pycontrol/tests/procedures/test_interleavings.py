"""Procedures in two and three sessions, in every order of their steps, on PostgreSQL."""

from uuid import uuid4

import pytest

from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.errors import SagaConflict
from rowpost.settings.environment import SagaSettings, Settings
from rowpost.transport.queue import Queue
from tests.support.interleaving import Session, orders, run

VERSIONS = {"persistence_version": "1", "saga_type_version": "1"}


@pytest.fixture(autouse=True)
def _postgresql(target):
    if target.settings.engine != "postgresql":
        pytest.skip("pg_blocking_pids says which session waits")


@pytest.fixture
def look(open_database):
    return open_database()


@pytest.fixture
def every_order(open_database, look):
    """Runs sessions in every order: `every_order(first, second, arrange=..., check=...)`; returns how many orders, and how many waits."""

    def run_all(*steps, arrange, check):
        connections = [open_database() for _ in steps]
        count = waited = 0
        for order in orders(*map(len, steps)):
            arrange()
            sessions = [Session(each) for each in connections]
            waited += run(order, sessions, steps, look)
            check(order, sessions)
            count += 1
        return count, waited

    return run_all


def begin(session):
    session.database.begin()


def commit(session):
    session.database.commit()


def rollback(session):
    session.database.rollback()


def ids(messages):
    return [each.id for each in messages]


@pytest.fixture
def receive(queue):
    """A step that receives one message; the session keeps its id."""

    def step(session):
        session.result = ids(Queue(queue.name, session.database).receive(1))

    return step


@pytest.fixture
def two_messages(queue, sql):
    """Makes the queue contain two messages."""

    def arrange():
        sql.empty(queue.name)
        queue.send(b"1")
        queue.send(b"2")

    return arrange


def test_two_receivers_never_get_the_same_message(every_order, receive, two_messages, queue):
    def check(order, sessions):
        received = sessions[0].result + sessions[1].result
        assert len(received) == len(set(received)) == 2, order
        assert queue.peek() == 0, order

    assert every_order([begin, receive, commit], [begin, receive, commit], arrange=two_messages, check=check) == (20, 0)


def test_a_message_that_is_given_back_is_received_by_another_or_waits(every_order, receive, two_messages, queue):
    def check(order, sessions):
        left = ids(queue.browse())
        assert len(sessions[0].result) == len(sessions[1].result) == 1, order
        assert len(left) == 1, order
        assert not set(left) & set(sessions[0].result), order

    assert every_order([begin, receive, commit], [begin, receive, rollback], arrange=two_messages, check=check) == (
        20,
        0,
    )


def test_a_message_is_received_only_when_it_is_committed_and_is_never_lost(every_order, receive, queue, sql):
    def send(session):
        session.result = Queue(queue.name, session.database).send(b"new")

    def check(order, sessions):
        left = ids(queue.browse())
        assert sorted(left + sessions[0].result) == [sessions[1].result], order
        assert len(sessions[0].result) == (
            order.index(0, order.index(0) + 1) > max(n for n, each in enumerate(order) if each == 1)
        ), order

    assert every_order(
        [begin, receive, commit], [begin, send, commit], arrange=lambda: sql.empty(queue.name), check=check
    ) == (20, 0)


def test_three_sessions_that_send_receive_and_give_back_lose_and_double_nothing(
    every_order, receive, two_messages, queue
):
    def begin_and_receive(session):
        begin(session)
        receive(session)

    def begin_and_send(session):
        begin(session)
        session.result = [Queue(queue.name, session.database).send(b"new")]

    def check(order, sessions):
        received, left = sessions[0].result, ids(queue.browse())
        assert len({*received, *left}) == len(received) + len(left) == 3, order
        assert not set(sessions[1].result) - {*received, *left}, order

    steps = [[begin_and_receive, commit], [begin_and_receive, rollback], [begin_and_send, commit]]
    assert every_order(*steps, arrange=two_messages, check=check) == (90, 0)


@pytest.mark.parametrize("end", [commit, rollback])
def test_one_of_two_sessions_claims_a_part(every_order, look, end):
    def claim(session):
        session.result = session.database.call("claim_ledger", job_key="job", part=0, parts=1)[0].claimed

    def check(order, sessions):
        rows = look.driver_connection.execute("SELECT count(*) FROM rowpost.ledger WHERE job_key = 'job'").fetchone()[0]
        committed = sessions[0].result + (sessions[1].result and end is commit)
        assert rows == committed, order
        assert committed == 1 or (end is rollback and sessions[1].result), order

    count, waited = every_order(
        [begin, claim, commit], [begin, claim, end],
        arrange=lambda: look.driver_connection.execute("DELETE FROM rowpost.ledger"), check=check,
    )  # fmt: skip
    assert count == 20
    assert waited > 0


@pytest.fixture
def saga(target, look):
    """The name of a deployed saga's table."""
    settings = target.settings
    apply(
        look,
        plan(
            Settings(
                engine=settings.engine,
                default_schema=settings.default_schema,
                url=target.url,
                queues=settings.queues,
                sagas=(SagaSettings("Interleaved", "OrderId"),),
            )
        ),
    )
    return "Interleaved"


def load(saga, *, locked):
    def step(session):
        rows = session.database.call("load_saga", saga, correlation_value="A", locked=locked, lock_timeout_ms=30_000)
        session.result = rows[0] if rows else None

    return step


def begin_and_load(saga, *, locked):
    def step(session):
        begin(session)
        load(saga, locked=locked)(session)

    return step


def store(saga):
    """A step that starts the instance, or counts one up in its state."""

    def step(session):
        if session.result is None:
            session.database.call(
                "insert_saga", saga, id=uuid4(), correlation_value="A", data="1", metadata="{}", **VERSIONS
            )
        else:
            data = str(int(session.result.data) + 1)
            session.database.call(
                "update_saga", saga, id=session.result.id, concurrency=session.result.concurrency, data=data, **VERSIONS
            )

    return step


def complete(saga):
    def step(session):
        if session.result is not None:
            session.database.call("complete_saga", saga, id=session.result.id, concurrency=session.result.concurrency)

    return step


def instances(look):
    return look.driver_connection.execute('SELECT "Data"::text::integer, "Concurrency" FROM "Interleaved"').fetchall()


def clear(look):
    look.driver_connection.execute('DELETE FROM "Interleaved"')


def start_one(look, saga):
    clear(look)
    look.call("insert_saga", saga, id=uuid4(), correlation_value="A", data="1", metadata="{}", **VERSIONS)


@pytest.mark.parametrize("locked", [False, True], ids=["optimistic", "pessimistic"])
def test_two_starts_of_one_saga_make_one_instance_and_lose_no_change(every_order, look, saga, locked):
    def check(order, sessions):
        stored = sum(each.error is None for each in sessions)
        assert all(isinstance(each.error, SagaConflict | None) for each in sessions), order
        assert instances(look) == [(stored, stored)], order

    load_it = begin_and_load(saga, locked=locked)
    count, waited = every_order(
        [load_it, store(saga), commit], [load_it, store(saga), commit],
        arrange=lambda: clear(look), check=check,
    )  # fmt: skip
    assert count == 20
    assert waited > 0


@pytest.mark.parametrize("locked", [False, True], ids=["optimistic", "pessimistic"])
def test_of_two_changes_of_one_instance_none_is_lost(every_order, look, saga, locked):
    def check(order, sessions):
        stored = sum(each.error is None for each in sessions)
        assert all(isinstance(each.error, SagaConflict | None) for each in sessions), order
        assert instances(look) == [(1 + stored, 1 + stored)], order
        assert stored == 2 or not locked, order

    load_it = begin_and_load(saga, locked=locked)
    count, waited = every_order(
        [load_it, store(saga), commit], [load_it, store(saga), commit],
        arrange=lambda: start_one(look, saga), check=check,
    )  # fmt: skip
    assert count == 20
    assert waited > 0


@pytest.mark.parametrize("locked", [False, True], ids=["optimistic", "pessimistic"])
def test_a_change_and_a_completion_of_one_instance_exclude_one_another(every_order, look, saga, locked):
    def check(order, sessions):
        changed, completed = sessions
        found_nothing = completed.error is None and changed.error is None and changed.result is None
        expected = [(1, 1)] if found_nothing else [(2, 2)] if completed.error is not None else []
        one_after_the_other = found_nothing or (completed.result is not None and completed.result.concurrency == 2)
        assert (changed.error is None and completed.error is None) is one_after_the_other, order
        assert instances(look) == expected, order

    load_it = begin_and_load(saga, locked=locked)
    count, waited = every_order(
        [load_it, store(saga), commit], [load_it, complete(saga), commit],
        arrange=lambda: start_one(look, saga), check=check,
    )  # fmt: skip
    assert count == 20
    assert waited > 0


def test_all_orders_are_counted():
    assert [len(set(orders(*counts))) for counts in ((3, 3), (2, 2, 2), (1, 1))] == [20, 90, 2]
