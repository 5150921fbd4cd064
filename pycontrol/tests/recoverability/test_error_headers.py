"""What an endpoint does to the headers of its messages in the error queue, and what a stack trace there contains."""

import logging
from dataclasses import replace

import pytest

from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.endpoint.hosting import host_of
from rowpost.errors import SettingsError
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.error_headers import without_secrets
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.environment import QueueSettings, WorkerSettings
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.workers import events
from tests.support.endpoints import OrderPlaced
from tests.support.schema import named
from tests.support.workers import eventually

TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Pay"}
INFO = "NServiceBus.ExceptionInfo."


def pay(body, context):
    card = "4000-1234"
    raise ValueError(f"card {card} refused, token=s3cret, for {len(card)} digits")


@pytest.fixture
def failed(database, queue, sql):
    """Handles a message with an endpoint that fails, and returns the headers of its copy in the error queue."""
    sql.empty("error")

    def run(handler=pay, **options):
        options = {"transaction_mode": "sends_atomic_with_receive", "recoverability": Recoverability(0, 0), **options}
        endpoint = Endpoint("Sales", **options)
        if handler is not None:
            endpoint.handles("Shop.Pay")(handler)
        queue.send(b"", {**TYPE, "Shop.Kept": "yes"})
        outcome = Pipeline(database, "Sales", endpoint, reconnect=database.open_second).process_one()
        assert outcome.kind is Kind.MOVED_TO_ERROR
        (copy,) = Queue("error", database).receive(10)
        return copy.headers

    return run


# ------------------------------------------------------------------ in every way to the error queue
@pytest.mark.parametrize("mode", MODES)
def test_a_function_adds_changes_and_removes_headers_of_the_copy(failed, mode):
    def change(headers, error):
        del headers[INFO + "ExceptionType"]
        return {**headers, INFO + "Message": "in short", "Shop.Error": type(error).__name__}

    headers = failed(error_headers=change, transaction_mode=mode)

    assert INFO + "ExceptionType" not in headers
    assert (headers[INFO + "Message"], headers["Shop.Error"], headers["Shop.Kept"]) == ("in short", "ValueError", "yes")


def test_a_message_that_kills_its_worker_gets_the_changed_headers(shop):
    shop.queue.send(b"", {"NServiceBus.EnclosedMessageTypes": "Shop.Die"})

    with shop.run("dying", limit=1) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.MovedToError), "the message is in the error queue")

    (copy,) = shop.errors()
    assert copy.headers["Shop.Seen"] == "ChildProcessError"


def test_a_subscribers_copy_that_cannot_be_stored_gets_the_changed_headers(database, queue, sql):
    sql.empty("error")
    topic = {"endpoint": "gone", "topic": "Shop.Messages.OrderPlaced"}
    database.call_atomically("subscribe", **topic, queue_address="Nowhere")
    endpoint = Endpoint("Sales", error_headers=lambda headers, error: {**headers, "Shop.Seen": type(error).__name__})
    try:
        with endpoint.open(database) as bus:
            bus.publish(OrderPlaced(1))
    finally:
        database.call_atomically("unsubscribe", **topic)

    (copy,) = Queue("error", database).browse(10)
    assert copy.headers["Shop.Seen"] == "QueueNotFound"


def test_a_delayed_message_without_a_destination_gets_the_changed_headers(target, database, queue, sql):
    sql.empty("error")
    worker = WorkerSettings("tests.support.handlers:dying")
    settings = replace(target.settings, queues=(QueueSettings("Sales", worker=worker),))
    headers = '{"NServiceBus.SqlServer.ForwardDestination":"Nowhere","NServiceBus.MessageId":"1"}'
    database.call("delay_message", "Sales", headers=headers, body=b"", delay_ms=0)

    host = host_of(settings, "Sales")
    eventually(
        lambda: move_due(database, "Sales", error_queue=named("error"), host=host).failed, "it is in the error queue"
    )

    (copy,) = Queue("error", database).browse(10)
    assert copy.headers["Shop.Seen"] == "QueueNotFound"


# ------------------------------------------------------------------ a function that fails
@pytest.mark.promise("failed-bookkeeping-loses-nothing")
@pytest.mark.parametrize(
    "change",
    [
        lambda headers, error: headers["Nothing"],
        lambda headers, error: headers.clear(),
        lambda headers, error: {**headers, "Shop.Count": 7},
        lambda headers, error: {**headers, "Shop.Note": "a\0b"},
    ],
    ids=["raises", "returns nothing", "a number", "a character that no database stores"],
)
def test_a_function_that_fails_leaves_the_headers_and_a_warning(failed, change, caplog):
    with caplog.at_level(logging.WARNING, "rowpost"):
        headers = failed(error_headers=change)

    assert headers["Shop.Kept"] == "yes"
    assert headers[INFO + "ExceptionType"] == "builtins.ValueError"
    assert "error_headers failed" in caplog.text


def test_a_function_that_takes_other_arguments_is_refused():
    with pytest.raises(SettingsError, match="error_headers of Sales"):
        Endpoint("Sales", error_headers=lambda headers: headers)


# ------------------------------------------------------------------ secrets
def test_secrets_are_masked_in_the_text_and_the_stack_and_nowhere_else(failed):
    def handler(body, context):
        try:
            pay(body, context)
        except ValueError as error:
            raise RuntimeError("token=s3cret again") from error

    headers = failed(handler, error_headers=without_secrets(r"(?<=token=)\w+|\d{4}-\d{4}"))

    assert headers[INFO + "Message"] == "token=*** again"
    assert "card *** refused, token=***" in headers[INFO + "StackTrace"]
    assert not any("s3cret" in (text or "") or "4000-1234" in (text or "") for text in headers.values())
    assert headers["Shop.Kept"] == "yes"


def test_a_stack_contains_no_values_of_variables(failed):
    def handler(body, context):
        password = "".join(["hun", "ter", "2"])
        raise ValueError(len(password))

    headers = failed(handler)

    assert "raise ValueError(len(password))" in headers[INFO + "StackTrace"]
    assert not any("hunter2" in (text or "") for text in headers.values())


def test_a_stack_begins_with_the_handler(failed):
    stack = failed()[INFO + "StackTrace"].splitlines()

    assert stack[0].startswith("Traceback")
    assert stack[1].endswith("in pay")
    assert stack[1].lstrip().startswith(f'File "{__file__}"')


def test_a_stack_of_an_error_of_rowpost_itself_is_whole(failed):
    stack = failed(None)[INFO + "StackTrace"]

    assert stack.count("  File ") > 1
    assert "NoHandler: Sales has no handler for Shop.Pay" in stack
