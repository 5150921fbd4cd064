"""What holds in each transaction mode: what a handler and a policy get, and what becomes of a row that no handler sees."""

from datetime import timedelta
from uuid import UUID

import pytest

from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Decision, Recoverability
from rowpost.transport.queue import Queue
from tests.support.crashing import TYPE, pipeline_of

TRANSACTIONAL = [mode for mode in MODES if mode != "none"]
HEADERS = {
    "NServiceBus.MessageId": "m1",
    "NServiceBus.EnclosedMessageTypes": TYPE,
    "a-B1": "a-B",
    "a-B2": "a-ɤϡ֎ᾣ♥-b",
    "a-ɤϡ֎ᾣ♥-B3": "a-B",
    "a-B4": "a-\U0001f60d-b",
    "a-\U0001f605-B5": "a-B",
}
ERROR = KeyError("no such order")


@pytest.fixture
def process(database, queue, sql):
    """Handles messages of Sales in a mode: `process(mode, handler, times)`. Returns the outcomes. Nothing is retried."""
    sql.empty("error")
    opened = []

    def run(mode, handler, times=1, recoverability=None):
        endpoint = Endpoint("Sales", transaction_mode=mode, recoverability=recoverability or Recoverability(0, 0))
        endpoint.handles(TYPE)(handler)
        opened.append(pipeline_of(database, endpoint))
        return [opened[-1].process_one() for _ in range(times)]

    yield run
    for pipeline in opened:
        pipeline.close()


def errors(database):
    return Queue("error", database).browse(10)


def fail(body, context):
    context.headers["a-B1"] = "changed"
    context.incoming.headers["Added"] = "by the handler"
    raise ERROR


@pytest.mark.parametrize("mode", MODES)
def test_a_handler_gets_the_id_the_headers_and_the_body_of_its_row(process, queue, mode):
    row = queue.send(b"\x01\x02\x03", HEADERS)
    seen = []

    def see(body, context):
        seen.append((context.endpoint.queue, context.incoming.id, dict(context.headers), body))

    (outcome,) = process(mode, see)

    assert outcome.kind is Kind.HANDLED
    assert seen == [("Sales", row, HEADERS, b"\x01\x02\x03")]
    assert isinstance(row, UUID)


@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_a_policy_gets_the_error_the_number_of_the_attempt_and_the_headers_as_they_arrived(process, queue, mode):
    queue.send(b"{}", HEADERS)
    failures = []

    def policy(failure):
        failures.append(failure)
        return Decision.RETRY

    process(mode, fail, times=3, recoverability=Recoverability(policy=policy))

    assert [failure.attempts for failure in failures] == [1, 2, 3]
    assert {failure.error for failure in failures} == {ERROR}
    assert [dict(failure.headers) for failure in failures] == [HEADERS] * 3


@pytest.mark.parametrize("mode", TRANSACTIONAL)
def test_what_a_handler_gives_its_error_reaches_the_policy(process, queue, mode):
    queue.send(b"{}", HEADERS)
    seen = []

    def fail_with_more(body, context):
        error = ValueError("busy")
        error.retry_after = timedelta(minutes=5)
        raise error

    def policy(failure):
        seen.append(failure.error.retry_after)
        return Decision.RETRY

    process(mode, fail_with_more, recoverability=Recoverability(policy=policy))

    assert seen == [timedelta(minutes=5)]


def test_none_asks_no_policy_and_the_error_queue_has_the_error_and_the_headers_as_they_arrived(
    process, queue, database
):
    queue.send(b"{}", HEADERS)
    failures = []

    (outcome,) = process("none", fail, recoverability=Recoverability(0, 0, policy=failures.append))

    assert (outcome.kind, outcome.attempts, failures) == (Kind.MOVED_TO_ERROR, 1, [])
    (error,) = errors(database)
    assert {name: error.headers[name] for name in HEADERS} == HEADERS
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.KeyError"
    assert "Added" not in error.headers


@pytest.mark.parametrize("mode", TRANSACTIONAL)
@pytest.mark.promise("failing-recoverability")
def test_a_message_whose_policy_raises_stays_and_is_tried_again(process, queue, mode):
    row = queue.send(b"{}", HEADERS)

    def policy(failure):
        if failure.attempts == 1:
            raise ValueError("the policy is broken")
        return Decision.ERROR

    first, second = process(mode, fail, times=2, recoverability=Recoverability(policy=policy))

    assert (first.kind, second.kind) == (Kind.UNMOVABLE, Kind.MOVED_TO_ERROR)
    assert f"Failed to execute recoverability policy for message with native ID: `{row}`" in first.error


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("corrupt-headers-move-unchanged")
def test_a_row_whose_headers_cannot_be_read_moves_unchanged_and_no_handler_sees_it(process, queue, database, sql, mode):
    row = sql.insert_minimal("Sales", "<corrupted headers", b"")
    seen = []

    (outcome,) = process(mode, lambda body, context: seen.append(body))

    assert (outcome.kind, seen, queue.peek()) == (Kind.CORRUPT, [], 0)
    assert [(error.id, error.raw_headers, error.body) for error in errors(database)] == [
        (row, "<corrupted headers", b"")
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("expired-is-dropped")
def test_an_expired_message_is_removed_and_the_next_one_is_handled(process, queue, database, sql, mode):
    sql.insert_expired("Sales", 1)
    queue.send(b"{}", HEADERS)
    seen = []

    outcomes = process(mode, lambda body, context: seen.append(body), times=3)

    assert [outcome.kind for outcome in outcomes] == [Kind.EXPIRED, Kind.HANDLED, Kind.EMPTY]
    assert (seen, queue.peek(), errors(database)) == ([b"{}"], 0, [])
