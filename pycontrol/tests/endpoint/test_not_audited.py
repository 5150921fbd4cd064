"""Messages that an endpoint handles and does not audit: by type, or by what a function of their headers says."""

from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import SettingsError
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.queue import Queue

TYPES = "NServiceBus.EnclosedMessageTypes"


@pytest.fixture
def audited(database, queue, sql):
    """Handles messages of these types, and returns the types of the copies in the audit queue."""
    for name in ("audit", "error"):
        sql.empty(name)

    def run(not_audited, *types, mode="sends_atomic_with_receive", handler=lambda message, context: None):
        endpoint = Endpoint(
            "Sales",
            audit_queue="audit",
            not_audited=not_audited,
            transaction_mode=mode,
            recoverability=Recoverability(0, 0),
        )
        for name in {each.partition(",")[0].partition(";")[0] for each in types}:
            endpoint.handles(name, bytes)(handler)
        for each in types:
            queue.send(b"", {TYPES: each})
        outcomes = [Pipeline(database, "Sales", endpoint, reconnect=database.open_second).process_one() for _ in types]
        return [each.kind for each in outcomes], [
            message.headers[TYPES] for message in Queue("audit", database).browse(10)
        ]

    return run


@pytest.mark.parametrize("mode", MODES)
def test_a_type_that_is_not_audited_is_handled_without_a_copy(audited, mode):
    kinds, copies = audited(["Shop.Ping"], "Shop.Ping, Shop, Version=1.0.0.0", "Shop.Order", mode=mode)

    assert (kinds, copies) == ([Kind.HANDLED, Kind.HANDLED], ["Shop.Order"])


def test_a_type_stands_for_what_derives_from_it(audited):
    _, copies = audited(["Shop.IProbe"], "Shop.Ping;Shop.IProbe", "Shop.Order;Shop.IEvent")

    assert copies == ["Shop.Order;Shop.IEvent"]


def test_a_function_decides_by_the_headers_as_they_arrived(audited):
    def change(message, context):
        context.incoming.headers[TYPES] = "changed"

    _, copies = audited(lambda headers: headers[TYPES] == "Shop.Ping", "Shop.Ping", "Shop.Order", handler=change)

    assert copies == ["Shop.Order"]


@pytest.mark.promise("nothing-vanishes")
def test_an_error_of_the_function_fails_the_message_and_the_error_queue_says_so(audited, database):
    kinds, copies = audited(lambda headers: headers["Nothing"], "Shop.Order")

    (failed,) = Queue("error", database).browse(10)
    assert (kinds, copies) == ([Kind.MOVED_TO_ERROR], [])
    assert failed.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.KeyError"


@pytest.mark.parametrize("intent", ["Send", "Reply"])
def test_the_copy_of_a_message_or_reply_that_expires_keeps_its_headers_and_does_not_expire(
    database, queue, sql, intent
):
    sql.empty("audit")
    headers = {TYPES: "Shop.Order", "NServiceBus.MessageIntent": intent, "MyHeader": "SomeValue"}
    queue.send(b"", {**headers, "NServiceBus.TimeToBeReceived": "00:30:00"}, time_to_be_received=timedelta(minutes=30))
    endpoint = Endpoint("Sales", audit_queue="audit")
    endpoint.handles("Shop.Order")(lambda message, context: None)

    Pipeline(database, "Sales", endpoint).process_one()

    (copy,) = Queue("audit", database).browse(10)
    assert {name: copy.headers[name] for name in headers} == headers
    assert copy.expires is None


def test_one_type_that_is_no_list_is_refused():
    with pytest.raises(SettingsError, match=r"\['Shop\.Ping'\]"):
        Endpoint("Sales", audit_queue="audit", not_audited="Shop.Ping")
