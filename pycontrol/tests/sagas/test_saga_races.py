"""Sagas that two sessions start, change and complete at the same time.

The tests hold each sentence of the sections "Starting a saga", "Changes to saga state" and "Completing a saga" of the
page "Saga concurrency" in the NServiceBus documentation. Each session has its own connection. Gates in the handlers stop
a session at the point that a sentence describes. The tests run on every engine that can be reached, with both kinds of
concurrency control, with the states in the queue's database and, with an outbox, in the business database.
"""

import threading

import pytest

from rowpost.recoverability.outcome import Kind
from tests.support.sagas import GATES, KINDS, Add, Close, Nudge, Open
from tests.support.sagas import make_desk as make_desk_of

__all__ = ["make_desk_of"]

WAIT = 20.0  # seconds


@pytest.fixture(params=["", "outbox"], ids=["one database", "outbox"])
def make_desk(request, make_desk_of):
    """Makes desks whose sagas are in the queue's database, or in the business database of an outbox."""
    outbox = request.getfixturevalue("business_url") if request.param else ""
    return lambda *arguments: make_desk_of(*arguments, outbox=outbox)


@pytest.fixture
def meeting():
    """A gate "meet": two handlers are inside at the same time, on their first attempts; later ones pass."""
    barrier, left = threading.Barrier(2), [2]

    def meet(saga, context):
        if left[0] > 0:
            barrier.wait(WAIT)
            left[0] -= 1

    GATES["meet"] = meet


@pytest.fixture
def door():
    """A gate "hold": the handler says that it is inside, and stays until the door is opened."""

    class Door:
        inside, opened = threading.Event(), threading.Event()

        def pass_through(self, saga, context):
            self.inside.set()
            assert self.opened.wait(WAIT)

    found = Door()
    found.inside.clear(), found.opened.clear()
    GATES["hold"] = found.pass_through
    return found


def race(desk):
    """Both queues' messages at the same time; how each ended, failures last."""
    sessions = [desk.start(name) for name in desk.QUEUES]
    return sorted((each.outcome() for each in sessions), key=lambda outcome: outcome.kind is not Kind.HANDLED)


# ------------------------------------------------------------------ starting a saga
@pytest.fixture(params=KINDS)
def started_twice(request, make_desk, meeting):
    """Two messages that start the same instance, handled at the same time."""
    desk = make_desk(request.param)
    desk.send(Open("A", 1, "meet"), "Sales")
    desk.send(Open("A", 2, "meet"), "Billing")
    return desk, race(desk)


@pytest.mark.promise("saga-starts-once")
def test_when_messages_that_start_the_same_instance_are_received_simultaneously_one_starts_it(started_twice):
    desk, (winner, loser) = started_twice

    assert (winner.kind, loser.kind) == (Kind.HANDLED, Kind.FAILED)
    assert [row[:2] for row in desk.rows] == [("A", 1)]


def test_the_state_of_the_one_that_starts_it_is_created_and_its_messages_are_dispatched(started_twice):
    desk, _ = started_twice

    ((_, _, state),) = desk.rows
    assert state["Total"] in (1, 2)
    assert desk.notes() == [f"total {state['Total']}"]


def test_the_other_fails_and_rolls_back_and_its_message_enters_recoverability(started_twice):
    desk, (_, loser) = started_twice

    assert "SagaConflict" in loser.error
    assert loser.attempts == 1
    assert desk.waiting("Sales") + desk.waiting("Billing") == 1


def test_when_it_is_retried_the_existing_state_is_found_and_changed(started_twice):
    desk, _ = started_twice
    (left,) = [name for name in desk.QUEUES if desk.waiting(name)]

    assert desk.work(left).kind is Kind.HANDLED

    ((_, version, state),) = desk.rows
    assert (version, state["Total"], sorted(state["Seen"])) == (2, 3, [1, 2])
    assert len(desk.notes()) == 2


@pytest.mark.parametrize("concurrency", KINDS)
def test_when_it_is_retried_the_saga_may_be_completed(make_desk, concurrency):
    desk = make_desk(concurrency)
    desk.send(Open("A", 1))
    desk.work()
    GATES["finish"] = lambda saga, context: saga.complete()

    desk.handle(Open("A", 2, "finish"))

    assert desk.rows == []
    assert desk.notes() == ["total 1", "total 3"]


# ------------------------------------------------------------------ changes to saga state
@pytest.mark.promise("saga-updates-are-not-lost")
def test_pessimistic_handlers_of_one_instance_are_invoked_one_after_another(make_desk, door):
    desk = make_desk("pessimistic")
    desk.handle(Open("A"))
    entered = []
    GATES["enter"] = lambda saga, context: entered.append(saga.state.total)
    desk.send(Add("A", 1, "hold"), "Sales")
    desk.send(Add("A", 2, "enter"), "Billing")

    first = desk.start("Sales")
    assert door.inside.wait(WAIT)
    second = desk.start("Billing")
    desk.wait_until_blocked()
    before_the_first_ended = list(entered)
    door.opened.set()

    assert [first.outcome().kind, second.outcome().kind] == [Kind.HANDLED, Kind.HANDLED]
    assert (before_the_first_ended, entered) == ([], [3])  # the second began with what the first had left
    assert [row[2]["Total"] for row in desk.rows] == [3]


def test_an_instance_that_is_locked_holds_up_no_other(make_desk, door):
    desk = make_desk("pessimistic")
    desk.handle(Open("A"))
    desk.handle(Open("B"))
    desk.send(Add("A", 1, "hold"), "Sales")
    desk.send(Add("B", 2), "Billing")

    first = desk.start("Sales")
    assert door.inside.wait(WAIT)
    other = desk.work("Billing")
    door.opened.set()

    assert (other.kind, first.outcome().kind) == (Kind.HANDLED, Kind.HANDLED)


@pytest.fixture
def changed_twice(make_desk, meeting):
    """Two messages that change the same instance, optimistic, handled at the same time."""
    desk = make_desk("optimistic")
    desk.handle(Open("A"))
    desk.send(Add("A", 1, "meet"), "Sales")
    desk.send(Add("A", 2, "meet"), "Billing")
    return desk, race(desk)


@pytest.mark.promise("saga-updates-are-not-lost")
def test_optimistic_only_one_message_changes_the_state(changed_twice):
    desk, (winner, loser) = changed_twice

    assert (winner.kind, loser.kind) == (Kind.HANDLED, Kind.FAILED)
    ((_, version, state),) = desk.rows
    assert (version, len(state["Seen"])) == (2, 2)


def test_its_state_is_updated_and_its_messages_are_dispatched(changed_twice):
    desk, _ = changed_twice

    ((_, _, state),) = desk.rows
    assert desk.notes() == sorted(["total 0", f"total {state['Total']}"])


def test_the_other_change_fails_and_rolls_back_and_enters_recoverability(changed_twice):
    desk, (_, loser) = changed_twice

    assert "SagaConflict" in loser.error
    assert (loser.attempts, desk.waiting("Sales") + desk.waiting("Billing")) == (1, 1)


def test_when_it_is_retried_the_process_repeats_with_the_state_as_it_is_then(changed_twice):
    desk, _ = changed_twice
    (left,) = [name for name in desk.QUEUES if desk.waiting(name)]

    assert desk.work(left).kind is Kind.HANDLED

    assert [(row[1], row[2]["Total"]) for row in desk.rows] == [(3, 3)]


def test_a_message_that_is_retried_may_meet_another_and_fail_again(make_desk):
    desk = make_desk("optimistic")
    desk.handle(Open("A"))
    GATES["overtaken"] = lambda saga, context: desk.work("Billing")
    for amount in (10, 20):
        desk.send(Add("A", amount), "Billing")
    desk.send(Add("A", 1, "overtaken"), "Sales")

    outcomes = [desk.work("Sales") for _ in range(3)]

    assert [each.kind for each in outcomes] == [Kind.FAILED, Kind.FAILED, Kind.HANDLED]
    assert [row[2]["Total"] for row in desk.rows] == [31]


# ------------------------------------------------------------------ completing a saga
def test_pessimistic_a_completion_and_a_change_are_invoked_one_after_another(make_desk, door):
    desk = make_desk("pessimistic")
    desk.handle(Open("A"))
    desk.send(Close("A", "hold"), "Sales")
    desk.send(Add("A", 2), "Billing")

    first = desk.start("Sales")
    assert door.inside.wait(WAIT)
    second = desk.start("Billing")
    desk.wait_until_blocked()
    door.opened.set()

    assert [first.outcome().kind, second.outcome().kind] == [Kind.HANDLED, Kind.DISCARDED]
    assert (desk.rows, desk.notes()) == ([], ["closed", "total 0"])


@pytest.fixture(params=["change first", "completion first"])
def completed_while_changed(request, make_desk):
    """A change and a completion of one instance, optimistic, handled at the same time; who ends first is chosen."""
    desk = make_desk("optimistic")
    desk.handle(Open("A"))
    first, second = (Add("A", 2), Close("A", "overtaken"))
    if request.param == "completion first":
        first, second = (Close("A"), Add("A", 2, "overtaken"))
    GATES["overtaken"] = lambda saga, context: desk.waiting("Billing") and desk.work("Billing")
    desk.send(first, "Billing")
    desk.send(second, "Sales")
    return desk, request.param, desk.work("Sales")


def test_optimistic_only_one_message_either_changes_the_state_or_completes_the_saga(completed_while_changed):
    desk, first, loser = completed_while_changed

    assert loser.kind is Kind.FAILED
    assert "SagaConflict" in loser.error
    assert len(desk.rows) == (1 if first == "change first" else 0)


def test_a_change_leaves_the_state_updated_a_completion_deletes_it_and_its_messages_are_dispatched(
    completed_while_changed,
):
    desk, first, _ = completed_while_changed

    if first == "change first":
        assert ([row[2]["Total"] for row in desk.rows], desk.notes()) == ([2], ["total 0", "total 2"])
    else:
        assert (desk.rows, desk.notes()) == ([], ["closed", "total 0"])


def test_the_others_fail_and_when_retried_complete_it_or_find_nothing(completed_while_changed):
    desk, first, _ = completed_while_changed

    assert desk.work("Sales").kind is (Kind.DISCARDED if first == "completion first" else Kind.HANDLED)

    assert desk.rows == []


def test_two_completions_at_the_same_time_complete_it_once(make_desk, meeting):
    desk = make_desk("optimistic")
    desk.handle(Open("A"))
    desk.send(Close("A", "meet"), "Sales")
    desk.send(Close("A", "meet"), "Billing")

    winner, loser = race(desk)

    assert (winner.kind, loser.kind) == (Kind.HANDLED, Kind.FAILED)
    assert (desk.rows, desk.notes()) == ([], ["closed", "total 0"])


@pytest.mark.parametrize("concurrency", KINDS)
@pytest.mark.promise("completed-saga")
def test_after_completion_later_messages_find_nothing_and_are_discarded_with_a_reason(make_desk, concurrency):
    desk = make_desk(concurrency)
    desk.handle(Open("A"))
    desk.handle(Close("A"))

    late = desk.handle(Add("A", 1))

    assert (late.kind, late.message_type) == (Kind.DISCARDED, "Ledger.Add")
    assert "there is no instance of the saga" in late.discard.reason
    assert (desk.rows, desk.notes(), desk.waiting("error")) == ([], ["closed", "total 0"], 0)


# ------------------------------------------------------------------ receiving, state and sending are one
@pytest.mark.parametrize("concurrency", KINDS)
@pytest.mark.promise("saga-failure-leaves-nothing")
def test_a_failing_handler_leaves_neither_a_change_of_state_nor_messages(make_desk, concurrency):
    def fail(saga, context):
        raise ValueError("no")

    desk = make_desk(concurrency)
    desk.handle(Open("A"))
    GATES["fail"] = fail

    outcomes = [desk.handle(Open("B", 5, "fail")), desk.handle(Add("A", 5, "fail"))]

    assert {each.kind for each in outcomes} == {Kind.FAILED}
    assert [(row[0], row[1], row[2]["Total"]) for row in desk.rows] == [("A", 1, 0)]
    assert (desk.notes(), desk.waiting("Sales")) == (["total 0"], 2)


@pytest.mark.parametrize("concurrency", KINDS)
def test_a_destination_that_does_not_exist_undoes_the_state_too(make_desk_of, concurrency):
    desk = make_desk_of(concurrency)
    desk.handle(Open("A"))
    GATES["nowhere"] = lambda saga, context: context.send(Nudge(), to="Nowhere")

    outcome = desk.handle(Add("A", 5, "nowhere"))

    assert (outcome.kind, [row[2]["Total"] for row in desk.rows], desk.notes()) == (Kind.FAILED, [0], ["total 0"])
