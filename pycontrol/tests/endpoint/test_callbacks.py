"""Requests that wait for their reply: from programs that are no handlers."""

import asyncio
import logging
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.deploy import queues as registry
from rowpost.deploy.grants import grant
from rowpost.endpoint.callbacks import Callbacks, opener
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import with_endpoints
from rowpost.errors import (
    DatabaseError,
    InvalidMessage,
    MessageNotDeserialized,
    NoReply,
    PermissionDenied,
    QueueNotFound,
    SettingsError,
    UnexpectedReply,
)
from rowpost.transport.queue import Queue
from rowpost.wire.headers import is_reply
from rowpost.wire.message import encode_headers
from rowpost.wire.message_types import message_type
from tests.support.endpoints import (
    OrderAccepted,
    PlaceOrder,
    Status,
    handled_table,  # noqa: F401 -- a fixture
)
from tests.support.schema import named
from tests.support.workers import Running, eventually

LONG = timedelta(seconds=20)
SHORT = timedelta(seconds=0.2)


@pytest.fixture
def web(target, handled_table, sql):  # noqa: F811
    """A send-only endpoint that waits for replies in a queue of its own; nothing is left of it after the test."""
    message_type("Shop.Messages.OrderAccepted")(
        OrderAccepted
    )  # the latest class counts, and other test modules have one of that name
    endpoint = Endpoint("Web", send_only=True, instance="web1")
    endpoint.callbacks(target.settings)
    yield endpoint
    endpoint.close()
    sql.drop_queue("Web.web1")


@pytest.fixture
def sales(target):
    """The endpoint Sales, at work."""
    with Running(with_endpoints(target.settings, ["tests.support.endpoints:sales"])) as supervisor:
        yield supervisor


def answer(database, request, body=b'{"OrderId":1}', **changed):
    """Replies by hand, as Sales would."""
    headers = {
        "NServiceBus.CorrelationId": request.headers["NServiceBus.CorrelationId"],
        "NServiceBus.EnclosedMessageTypes": "Shop.Messages.OrderAccepted, Shop.Messages",
        "NServiceBus.MessageIntent": "Reply",
        **changed,
    }
    Queue("Web.web1", database).send(body, headers)


def returned(code):
    """The headers of a reply that is a number or an enum."""
    return {
        "NServiceBus.EnclosedMessageTypes": None,
        "NServiceBus.ControlMessage": "True",
        "NServiceBus.MessageIntent": "Reply",
        "NServiceBus.ReturnMessage.ErrorCode": code,
    }


# ------------------------------------------------------------------ replies
def test_a_request_gets_its_typed_reply_from_an_endpoint_at_work(web, sales, database):
    with web.open(database) as bus:
        reply = bus.request(PlaceOrder(42, "reply"), to="Sales", timeout=LONG)

    assert reply == OrderAccepted(42)


def test_a_reply_may_be_a_number_or_an_enum(web, sales, database):
    wishes = [("reply number", 2**40), ("reply number", -3), ("reply enum", 1)]

    with web.open(database) as bus:
        replies = [bus.request(PlaceOrder(number, wish), to="Sales", timeout=LONG) for wish, number in wishes]

    assert [(reply, type(reply)) for reply in replies] == [(2**40, int), (-3, int), (7, int)]


def test_a_reply_of_a_net_endpoint_that_is_a_number_is_one(web, database):
    """As NServiceBus.Callbacks sends it: no body, no type, no content type."""
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(web.callbacks().request, PlaceOrder(1), "Billing", timeout=LONG)
        (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
        answer(database, request, b"", **returned("7"))

        assert Status(asked.result(20)) is Status.SOLD_OUT


def test_a_number_that_is_none_raises_where_it_was_asked_for(web, database):
    with ThreadPoolExecutor(1) as threads:
        for code in ("", "seven", "9" * 5000, None):
            asked = threads.submit(web.callbacks().request, PlaceOrder(1), "Billing", timeout=LONG)
            (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
            answer(database, request, b"", **returned(code))

            with pytest.raises(MessageNotDeserialized, match=r"ReturnMessage\.ErrorCode"):
                asked.result(20)


def test_a_request_leaves_at_once_although_the_callers_transaction_rolls_back(web, sales, database):
    with pytest.raises(ZeroDivisionError), database.transaction(), web.open(database) as bus:
        reply = bus.request(PlaceOrder(42, "reply"), to="Sales", timeout=LONG)
        1 / 0  # noqa: B018

    assert reply == OrderAccepted(42)


def test_concurrent_requests_each_get_their_own_reply(web, sales):
    callbacks = web.callbacks()

    def ask(number):
        return callbacks.request(PlaceOrder(number, "reply"), to="Sales", timeout=LONG)

    with ThreadPoolExecutor(12) as threads:
        replies = list(threads.map(ask, range(60)))

    assert replies == [OrderAccepted(number) for number in range(60)]


def test_a_reply_without_a_known_class_is_its_bytes(web, sales):
    assert web.callbacks().request(PlaceOrder(1, "reply raw"), to="Sales", timeout=LONG) == b"raw"


def test_a_class_that_the_endpoint_expects_wins(web, sales):
    @dataclass(frozen=True)
    class Accepted:
        order_id: int

    Accepted.__rowpost_type__ = "Shop.Messages.OrderAccepted"
    web.expects(Accepted)

    assert web.callbacks().request(PlaceOrder(5, "reply"), to="Sales", timeout=LONG) == Accepted(5)


def test_the_request_names_the_instances_queue_and_no_other_as_its_reply_address(web, database):
    web.callbacks().submit(PlaceOrder(1), to="Billing").cancel()

    (request,) = Queue("Billing", database).receive(5)
    assert request.reply_to == database.canonical(registry.parse_address("Web.web1"))
    assert request.headers["NServiceBus.CorrelationId"] == request.message_id


# ------------------------------------------------------------------ only the answer is the answer
@dataclass(frozen=True)
class Progress:
    percent: int


def tell_progress(database, request, percent):
    """Sends a message that is no reply, as the handler of the request could before it replies."""
    with Endpoint("Billing").open(database) as bus:
        same = {"NServiceBus.CorrelationId": request.headers["NServiceBus.CorrelationId"]}
        bus.send(Progress(percent), to=request.reply_to, headers=same)


def test_a_message_that_is_sent_before_the_reply_is_not_the_answer(web, database):
    web.expects(Progress)
    interim = []

    future = web.callbacks().submit(PlaceOrder(1), "Billing", on_interim=interim.append)
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
    tell_progress(database, request, 10)
    tell_progress(database, request, 90)
    answer(database, request)

    assert future.result(20) == OrderAccepted(1)
    assert interim == [Progress(10), Progress(90)]


def test_an_error_of_the_function_for_interim_messages_ends_the_request(web, database):
    def refuse(message):
        raise ZeroDivisionError

    future = web.callbacks().submit(PlaceOrder(1), "Billing", on_interim=refuse)
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
    tell_progress(database, request, 10)

    with pytest.raises(ZeroDivisionError):
        future.result(20)


def test_an_interim_message_that_nobody_asks_for_moves_to_the_error_queue_of_an_endpoint_without_handlers(
    web, database
):
    future = web.callbacks().submit(PlaceOrder(1), "Billing")
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
    tell_progress(database, request, 10)
    (failed,) = eventually(lambda: Queue("error", database).browse(5), "the message is in the error queue")
    answer(database, request)

    assert future.result(20) == OrderAccepted(1)
    assert "send-only" in failed.headers["NServiceBus.ExceptionInfo.Message"]
    assert failed.headers["NServiceBus.FailedQ"] == request.reply_to


def test_a_message_that_cannot_be_moved_stays_and_replies_arrive(target, database, sql, handled_table, caplog):  # noqa: F811
    endpoint = Endpoint("Web", send_only=True, instance="web1", error_queue="Nowhere")
    callbacks = endpoint.callbacks(target.settings)

    futures = [callbacks.submit(PlaceOrder(number), "Billing") for number in range(3)]
    requests = [eventually(lambda: Queue("Billing", database).receive(1), "a request")[0] for _ in futures]
    answer(database, requests[0])
    tell_progress(database, requests[0], 10)
    answer(database, requests[1])
    replies = [future.result(20) for future in futures[:2]]
    answer(database, requests[2])
    futures[2].result(20)

    endpoint.close()
    assert replies == [OrderAccepted(1), OrderAccepted(1)]
    assert len(Queue("Web.web1", database).browse(5)) == 1
    assert "cannot be moved" in caplog.text
    sql.drop_queue("Web.web1")


@pytest.mark.parametrize(
    ("version", "intent", "answers"),
    [
        *(("4.7.12", intent, True) for intent in ("Reply", "Send", "Publish", None)),
        *(("5.0.0", intent, intent == "Reply") for intent in ("Reply", "Send", "Publish", "Subscribe", "Unsubscribe")),
        *(("10.2.8", intent, intent == "Reply") for intent in ("Reply", "Send", "Publish", None)),
        (None, "Send", False),
    ],
)
def test_only_a_reply_answers_but_for_senders_that_did_not_say_what_it_is(version, intent, answers):
    headers = {"NServiceBus.Version": version, "NServiceBus.MessageIntent": intent}

    assert is_reply(headers) is answers


@pytest.mark.parametrize(
    ("expected", "headers", "says"),
    [
        (Progress, {}, r"expects a reply of .*Progress, and got Shop\.Messages\.OrderAccepted"),
        (int, {}, r"expects a reply of .*int, and got Shop\.Messages\.OrderAccepted"),
        (OrderAccepted, returned("7"), r"expects a reply of OrderAccepted, and got the number 7"),
        (Status, returned("8"), r"expects a reply of Status, and got the number 8"),
    ],
)
def test_a_reply_of_another_class_than_the_expected_one_is_an_error_that_names_both(
    web, database, expected, headers, says
):
    future = web.callbacks().submit(PlaceOrder(1), "Billing", reply=expected)
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
    answer(database, request, **headers)

    with pytest.raises(UnexpectedReply, match=says):
        future.result(20)


@pytest.mark.parametrize(
    ("expected", "headers", "value"),
    [
        (OrderAccepted, {}, OrderAccepted(1)),
        (object, {}, OrderAccepted(1)),
        (bytes, {}, b'{"OrderId":1}'),
        (int, returned("7"), 7),
        (Status, returned("7"), Status.SOLD_OUT),
    ],
)
def test_a_reply_of_the_expected_class_is_returned(web, database, expected, headers, value):
    future = web.callbacks().submit(PlaceOrder(1), "Billing", reply=expected)
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
    answer(database, request, **headers)

    assert future.result(20) == value


def test_a_request_with_an_id_of_its_own_gets_its_reply(web, sales):
    callbacks = web.callbacks()

    reply = callbacks.request(PlaceOrder(3, "reply"), "Sales", timeout=LONG, headers={"NServiceBus.MessageId": "mine"})

    assert reply == OrderAccepted(3)


# ------------------------------------------------------------------ cancelled requests
@pytest.mark.parametrize("headers", [{}, returned("7")], ids=["a message", "a number"])
def test_a_cancelled_request_gets_no_reply_and_the_reply_is_dropped_as_a_late_one(web, database, headers, caplog):
    callbacks = web.callbacks()
    future = callbacks.submit(PlaceOrder(1), "Billing")
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")

    cancelled, waiting = future.cancel(), dict(callbacks._pending)
    answer(database, request, **headers)
    eventually(lambda: callbacks.dropped["late"], "the reply is dropped")

    assert (cancelled, waiting) == (True, {})
    with pytest.raises(CancelledError):
        future.result(0)
    assert "late, for request" in caplog.text


def test_a_task_of_asyncio_that_is_cancelled_gives_its_request_up(web, database):
    callbacks = web.callbacks()

    async def ask():
        future = await asyncio.to_thread(callbacks.submit, PlaceOrder(1), "Billing")
        async with asyncio.timeout(0.05):
            await asyncio.wrap_future(future)

    with pytest.raises(TimeoutError):
        asyncio.run(ask())
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
    answer(database, request)

    assert eventually(lambda: callbacks.dropped, "the reply is dropped") == {"late": 1}


def test_a_task_of_asyncio_awaits_its_reply(web, sales):
    async def ask():
        future = await asyncio.to_thread(web.callbacks().submit, PlaceOrder(4, "reply"), "Sales")
        return await asyncio.wrap_future(future)

    assert asyncio.run(ask()) == OrderAccepted(4)


# ------------------------------------------------------------------ what goes wrong
def test_a_late_reply_is_logged_and_dropped(web, database, caplog):
    callbacks = web.callbacks()
    callbacks.submit(PlaceOrder(0), to="Billing").cancel()  # until this process owns the queue: no part of the timeout
    with pytest.raises(NoReply, match="within 0:00:00"):
        callbacks.request(PlaceOrder(1), to="Billing", timeout=SHORT)
    _, request = Queue("Billing", database).receive(5)

    with caplog.at_level(logging.WARNING, "rowpost"):
        answer(database, request)
        eventually(lambda: "late" in caplog.text, "the late reply is told")

    assert Queue("Web.web1", database).peek() == 0
    assert callbacks.dropped == {"late": 1}


def test_strange_messages_among_the_replies_move_to_the_error_queue_and_the_next_reply_arrives(
    web, sales, database, sql, caplog
):
    callbacks = web.callbacks()
    callbacks.start()
    with caplog.at_level(logging.WARNING, "rowpost"):
        sql.insert_minimal("Web.web1", "{no JSON", b"")
        sql.insert_minimal("Web.web1", "", b"")
        sql.insert_minimal("Web.web1", encode_headers({"NServiceBus.CorrelationId": "x" * 10_000}), b"")
        reply = callbacks.request(PlaceOrder(1, "reply twice"), to="Sales", timeout=LONG)
        eventually(lambda: "Dropped" in caplog.text, "the second reply is told")

    assert reply == OrderAccepted(1)
    assert caplog.text.count("because it is not a reply") == 3
    assert callbacks.dropped == {"unknown": 1}
    assert len(Queue("error", database).receive(5)) == 3


def test_a_reply_that_is_not_what_its_type_says_raises_where_it_was_asked_for(web, database):
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(web.callbacks().request, PlaceOrder(1), "Billing", timeout=LONG)
        requests = eventually(lambda: Queue("Billing", database).receive(1), "the request")
        answer(database, requests[0], b"{")

        with pytest.raises(MessageNotDeserialized):
            asked.result(20)


def test_an_expired_reply_counts_as_none(web, database, sql):
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(web.callbacks().request, PlaceOrder(1), "Billing", timeout=timedelta(seconds=1))
        eventually(lambda: Queue("Billing", database).receive(1), "the request")
        sql.insert_expired("Web.web1", 1)

        with pytest.raises(NoReply):
            asked.result(20)


def test_a_destination_that_does_not_exist_is_told_at_once(web):
    with pytest.raises(QueueNotFound, match="Nowhere"):
        web.callbacks().request(PlaceOrder(1), to="Nowhere", timeout=LONG)


def test_two_requests_with_one_correlation_id_are_refused(web, database):
    callbacks, same = web.callbacks(), {"NServiceBus.CorrelationId": "a" * 10_000}
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(callbacks.request, PlaceOrder(1), "Billing", timeout=LONG, headers=same)
        (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")

        with pytest.raises(InvalidMessage, match="of its own"):
            callbacks.request(PlaceOrder(2), "Billing", timeout=LONG, headers=same)
        answer(database, request)

        assert first.result(20) == OrderAccepted(1)


def test_a_timeout_must_leave_time(web):
    with pytest.raises(InvalidMessage, match="no time"):
        web.callbacks().request(PlaceOrder(1), to="Billing", timeout=timedelta(0))


def test_closing_ends_those_who_wait(web, database):
    callbacks = web.callbacks()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(callbacks.request, PlaceOrder(1), "Billing", timeout=LONG)
        eventually(lambda: Queue("Billing", database).receive(1), "the request")
        callbacks.close()

        with pytest.raises(NoReply, match="closed"):
            asked.result(20)
    with pytest.raises(NoReply, match="closed"):
        callbacks.request(PlaceOrder(1), to="Billing", timeout=LONG)


def test_an_endpoint_without_an_instance_cannot_wait(target):
    with pytest.raises(SettingsError, match="instance="):
        Endpoint("Web", send_only=True).callbacks(target.settings)


def test_a_connection_that_was_lent_does_not_say_where_to_receive(database):
    web = Endpoint("Web", send_only=True, instance="web1")

    with pytest.raises(DatabaseError, match="load_settings"), web.open(database.driver_connection) as bus:
        bus.request(PlaceOrder(1), to="Sales", timeout=LONG)


def test_replies_arrive_again_after_the_connection_was_lost(web, sales, sql, target):
    if target.settings.engine != "postgresql":
        pytest.skip("ends sessions by pg_terminate_backend")
    callbacks = web.callbacks()
    callbacks.start()

    sql.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rowpost Web'")

    def ask():
        try:
            return callbacks.request(PlaceOrder(9, "reply"), to="Sales", timeout=timedelta(seconds=5))
        except DatabaseError:
            return None

    assert eventually(ask, "a request after the loss") == OrderAccepted(9)


# ------------------------------------------------------------------ the instance's queue
def test_the_queue_is_made_by_the_first_who_needs_it_and_used_by_the_next(web, target, database):
    web.callbacks().start()
    web.close()
    again = Callbacks(web, opener(target.settings, "Web"))

    with again:
        rows = [row for row in database.call("list_queues") if row[0] == named("Web.web1")]

    assert [(row[5], row[8]) for row in rows] == [("own", False)]


def test_who_may_not_make_the_queue_is_told_who_can(web, target, sql, database):
    if target.settings.engine != "postgresql":
        pytest.skip("changes its role as only PostgreSQL can")
    sql.run("DROP ROLE IF EXISTS rowpost_test_web")
    sql.run("CREATE ROLE rowpost_test_web LOGIN IN ROLE rowpost_endpoint")

    def connect():
        opened = target.connect()
        opened.driver_connection.execute("SET ROLE rowpost_test_web")
        return opened

    callbacks = Callbacks(Endpoint("Web", send_only=True, instance="web1"), connect)
    with pytest.raises(PermissionDenied, match=r"rowpost queue create Web\.web1"):
        callbacks.start()
    registry.create_queue(database, named("Web.web1"), delayed=False)
    grant(database, "rowpost_test_web", receive_from=[named("Web.web1")], send_to=[named("Billing")])
    with callbacks:
        future = callbacks.submit(PlaceOrder(1), to="Billing")
        future.cancel()

    assert future.cancelled()
    assert Queue("Billing", database).peek() == 1

    sql.run("DROP OWNED BY rowpost_test_web")
    sql.run("DROP ROLE rowpost_test_web")


@pytest.mark.engine_schema("spells the key of a queue in the engine's own schema")
def test_an_orphaned_queue_is_found_and_removed(web, database, sql):
    web.callbacks().start()
    eventually(lambda: sql.run("SELECT 1 FROM rowpost.queue_ownership WHERE queue_key = 'Web.web1'"), "the ownership")
    alive = database.call("check_queue", queue_name="Web.web1")
    web.close()

    past = "now() - interval '1 hour'" if database.engine == "postgresql" else "DATEADD(HOUR, -1, SYSUTCDATETIME())"
    sql.run(f"UPDATE rowpost.queue_ownership SET ends_at = {past} WHERE queue_key = 'Web.web1'")
    findings = database.call("check_queue")
    registry.drop_queue(database, "Web.web1")

    assert alive == []
    assert [(row[0], row[1], row[3]) for row in findings if row[1] == "orphaned"] == [
        ("Web.web1", "orphaned", "rowpost queue drop Web.web1")
    ]
    assert database.call("check_queue") == []
    assert sql.run("SELECT 1 FROM rowpost.queue_ownership") == []


def test_one_thread_receives_however_many_wait(web, database):
    callbacks = web.callbacks()
    with ThreadPoolExecutor(5) as threads:
        asked = [threads.submit(callbacks.request, PlaceOrder(n), "Billing", timeout=LONG) for n in range(5)]
        queue, requests = Queue("Billing", database), []
        eventually(lambda: requests.extend(queue.receive(5)) or len(requests) == 5, "the requests")
        receivers = [t for t in threading.enumerate() if t.name == f"rowpost replies {named('Web.web1')}"]
        for request in reversed(requests):
            answer(database, request, request.body)

        replies = sorted(each.result(20).order_id for each in asked)

    assert len(receivers) == 1
    assert replies == list(range(5))
