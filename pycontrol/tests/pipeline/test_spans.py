"""Spans of OpenTelemetry: their names, attributes and parents are those of NServiceBus, and a trace goes on from queue to queue."""

import json
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags, get_current_span

import rowpost
from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import DatabaseUnavailable
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.crashing import TYPE
from tests.support.observed import Observed, parent_header
from tests.support.outboxes import endpoint_of
from tests.support.pipelines import pipeline_with
from tests.support.recorded_rows import recorded
from tests.support.sagas import GATES, Nudge, Open, deploy, make_endpoint, make_ledger

TRACE = "NServiceBus.OpenTelemetry.StartNewTrace"
PROCESS, SEND, PUBLISH, REPLY = "process message", "send message", "publish event", "reply"
ROOM = Path(rowpost.__file__).parent


@message_type("Traced.Place")
@dataclass(frozen=True)
class Place:
    wish: str = ""


@message_type("Traced.Bill")
@dataclass(frozen=True)
class Bill:
    """A command."""


@message_type("Traced.Remind")
@dataclass(frozen=True)
class Remind:
    """A delayed command."""


@message_type("Traced.Placed")
@dataclass(frozen=True)
class Placed:
    """An event."""


@message_type("Traced.Accepted")
@dataclass(frozen=True)
class Accepted:
    """A reply."""


class Desk:
    """Endpoints Sales and Billing, both observed."""

    def __init__(self, database, observed):
        self.database, self.observed = database, observed
        self.sales = self.make("Sales", Place, self._wish)
        self.billing = self.make("Billing", Bill, self._nothing)
        for cls in (Remind, Placed, Accepted):
            self.billing.handles(f"Traced.{cls.__name__}", cls)(self._nothing)

    def make(self, name, cls, handler, *, observed=True, **options):
        recoverability = options.pop("recoverability", Recoverability(immediate_retries=0, delayed_retries=0))
        endpoint = Endpoint(name, recoverability=recoverability, **options)
        endpoint.handles(f"Traced.{cls.__name__}", cls)(handler)
        if observed:
            endpoint.observe(self.observed.telemetry)
        return endpoint

    def _wish(self, message, context):
        match message.wish:
            case "fail":
                context.send(Bill(), to="Billing")
                raise ValueError("no such order")
            case "publish":
                context.publish(Placed())
            case "reply":
                context.reply(Accepted())
            case "later":
                context.send(Remind(), to="Billing", delay=timedelta(0))
            case "at once":
                context.send(Bill(), to="Billing", immediate=True)
                raise ValueError("after all")
            case _:
                context.send(Bill(), to="Billing")

    def _nothing(self, message, context): ...

    def place(self, *wishes, endpoint=None):
        with (endpoint or self.sales).open(self.database) as bus:
            for wish in wishes or ("",):
                bus.send(Place(wish), to="Sales", reply_to="Billing")

    def run(self, endpoint=None):
        endpoint = endpoint or self.sales
        outcome = endpoint.process_one(self.database)
        return outcome.kind

    def batches(self, size, endpoint=None):
        endpoint = endpoint or self.sales
        pipeline = pipeline_with(
            self.database,
            "Sales",
            endpoint,
            reconnect=self.database.open_second,
            observers=[self.observed.telemetry.pipeline("Sales")],
        )
        return Batches(pipeline, BatchSize(size, None, now=size))

    def headers(self, queue):
        (message,) = Queue(queue, self.database).browse(5)
        return message.headers


@pytest.fixture
def desk(database, sql):
    for queue in ("Sales", "Billing", "error"):
        sql.empty(queue)
        sql.run(f"DELETE FROM {sql.table(f'{queue}.Delayed')}")
    subscription = {"endpoint": "Billing", "topic": "Traced.Placed"}
    database.call_atomically("subscribe", **subscription, queue_address="Billing")
    yield Desk(database, Observed())
    database.call_atomically("unsubscribe", **subscription)


def child_of(span, parent):
    return span.parent is not None and (span.context.trace_id, span.parent.span_id) == (
        parent.context.trace_id,
        parent.context.span_id,
    )


def links(span):
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def exception_of(span):
    (event,) = span.events
    assert event.name == "exception"
    return event.attributes


# ------------------------------------------------------------------------------------------------ from queue to queue
def test_one_trace_goes_through_two_endpoints(desk):
    desk.place()
    assert (desk.run(), desk.run(desk.billing)) == (Kind.HANDLED, Kind.HANDLED)

    placed, received, handled, billed, received_too, handled_too = desk.observed.spans()
    assert [span.name for span in (placed, received, billed, received_too)] == [SEND, PROCESS, SEND, PROCESS]
    assert placed.parent is None
    assert all(
        child_of(*pair)
        for pair in (
            (received, placed),
            (handled, received),
            (billed, handled),
            (received_too, billed),
            (handled_too, received_too),
        )
    )
    kinds = [span.kind for span in (placed, received, handled)]
    assert kinds == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.INTERNAL]
    assert {span.status.status_code for span in desk.observed.spans()} == {StatusCode.OK}
    assert {
        (span.instrumentation_scope.name, span.instrumentation_scope.version) for span in desk.observed.spans()
    } == {("NServiceBus.Core", "0.1.0")}


def test_the_header_of_a_sent_message_names_the_span_of_the_send(desk):
    desk.place()
    sent = desk.headers("Sales")
    desk.run()

    placed, billed = desk.observed.spans(SEND)
    assert sent["traceparent"] == parent_header(placed)
    assert desk.headers("Billing")["traceparent"] == parent_header(billed)
    assert sent[TRACE] == "False"


def test_a_delayed_message_starts_a_trace_with_a_link_to_its_send(desk):
    desk.place("later")
    desk.run()
    move_due(desk.database, "Billing")
    assert desk.headers("Billing")[TRACE] == "True"
    assert desk.run(desk.billing) is Kind.HANDLED

    later, received = desk.observed.spans(SEND)[-1], desk.observed.spans(PROCESS)[-1]
    assert received.parent is None
    assert received.context.trace_id != later.context.trace_id
    assert links(received) == [(later.context.trace_id, later.context.span_id)]


def test_an_event_starts_a_trace_with_a_link_and_a_reply_goes_on(desk):
    desk.place("publish", "reply")
    assert (desk.run(), desk.run(), desk.run(desk.billing), desk.run(desk.billing)) == (Kind.HANDLED,) * 4

    published, replied = desk.observed.only(PUBLISH), desk.observed.only(REPLY)
    by_type = {span.attributes["nservicebus.enclosed_message_types"]: span for span in desk.observed.spans(PROCESS)}
    event, reply = by_type["Traced.Placed"], by_type["Traced.Accepted"]
    assert (event.parent, links(event)) == (None, [(published.context.trace_id, published.context.span_id)])
    assert child_of(reply, replied)
    assert links(reply) == []


def test_a_message_without_a_trace_starts_one(desk):
    with desk.make("Web", Bill, desk._nothing, observed=False, send_only=True).open(desk.database) as bus:
        bus.send(Place(), to="Sales")

    assert desk.run() is Kind.HANDLED

    received = desk.observed.only(PROCESS)
    assert (received.parent, links(received)) == (None, [])


@pytest.mark.parametrize("verb", ["send", "publish"])
@pytest.mark.parametrize("new_trace", ["True", "False"])
def test_a_sender_chooses_whether_its_receiver_starts_a_trace(desk, verb, new_trace):
    with desk.sales.open(desk.database) as bus:
        if verb == "send":
            bus.send(Bill(), to="Billing", headers={TRACE: new_trace})
        else:
            bus.publish(Placed(), headers={TRACE: new_trace})

    assert desk.run(desk.billing) is Kind.HANDLED

    sent, received = desk.observed.only(SEND if verb == "send" else PUBLISH), desk.observed.only(PROCESS)
    assert child_of(received, sent) is (new_trace == "False")
    assert links(received) == ([(sent.context.trace_id, sent.context.span_id)] if new_trace == "True" else [])


def test_a_program_s_own_span_is_the_parent_of_what_it_sends(desk):
    with desk.observed.tracers.get_tracer("shop").start_as_current_span("click"):
        desk.place()

    assert child_of(desk.observed.only(SEND), desk.observed.only("click"))


def test_a_handler_s_own_span_and_baggage_go_on(desk):
    def handle(message, bus):
        with desk.observed.tracers.get_tracer("shop").start_as_current_span("look up"):
            token = context.attach(baggage.set_baggage("user", "ä b,c"))
            bus.send(Bill(), to="Billing")
            context.detach(token)

    seen = []
    billing = desk.make("Billing", Bill, lambda message, bus: seen.append(dict(baggage.get_all())))
    desk.place()
    desk.run(desk.make("Sales", Place, handle))
    sent = desk.headers("Billing")["baggage"]
    desk.run(billing)

    own = desk.observed.only("look up")
    assert child_of(own, desk.observed.only("test_a_handler_s_own_span_and_baggage_go_on.<locals>.handle"))
    assert child_of(desk.observed.spans(SEND)[-1], own)
    assert (sent, seen) == ("user=%C3%A4%20b%2Cc", [{"user": "ä b,c"}])


def test_nothing_of_a_message_stays_current_after_it(desk):
    desk.place("", "fail")
    desk.run()
    desk.run()

    assert not get_current_span().get_span_context().is_valid
    assert not baggage.get_all()


def test_a_trace_that_is_not_sampled_goes_on_unsampled(desk):
    desk.observed = Observed(sampler=ALWAYS_OFF)
    sales = desk.make("Sales", Place, desk._wish)
    desk.place(endpoint=sales)
    desk.run(sales)

    assert desk.observed.spans() == []
    assert int(desk.headers("Billing")["traceparent"][-2:], 16) & TraceFlags.SAMPLED == 0


# ------------------------------------------------------------------------------------------------ names and attributes
def test_attributes_are_those_of_nservicebus(desk):
    desk.place()
    (row,) = Queue("Sales", desk.database).browse(5)
    desk.run()

    received, sent = desk.observed.only(PROCESS), desk.observed.spans(SEND)[0]
    named = {
        "nservicebus.message_id": "NServiceBus.MessageId",
        "nservicebus.correlation_id": "NServiceBus.CorrelationId",
        "nservicebus.conversation_id": "NServiceBus.ConversationId",
        "nservicebus.message_intent": "NServiceBus.MessageIntent",
        "nservicebus.reply_to_address": "NServiceBus.ReplyToAddress",
        "nservicebus.enclosed_message_types": "NServiceBus.EnclosedMessageTypes",
        "nservicebus.content_type": "NServiceBus.ContentType",
        "nservicebus.originating_endpoint": "NServiceBus.OriginatingEndpoint",
        "nservicebus.originating_machine": "NServiceBus.OriginatingMachine",
        "nservicebus.originating_host_id": "$.diagnostics.originating.hostid",
    }
    expected = {attribute: row.headers[header] for attribute, header in named.items()}
    assert dict(sent.attributes) == expected
    assert dict(received.attributes) == {**expected, "nservicebus.native_message_id": str(row.id)}


def test_a_handler_s_span_has_its_name_and_full_name(desk):
    desk.place()
    desk.run()

    (span,) = [each for each in desk.observed.spans() if each.kind is SpanKind.INTERNAL]
    assert span.name == "Desk._wish"
    assert dict(span.attributes) == {"nservicebus.handler.handler_type": f"{__name__}.Desk._wish"}


def test_each_handler_of_a_message_has_a_span_of_its_own(desk):
    def other(message, context): ...

    sales = desk.make("Sales", Place, desk._wish)
    sales.handles("Traced.Place", Place)(other)
    desk.place()

    assert desk.run(sales) is Kind.HANDLED

    received, handled = desk.observed.only(PROCESS), [s for s in desk.observed.spans() if s.kind is SpanKind.INTERNAL]
    assert [span.attributes["nservicebus.handler.handler_type"].rpartition(".")[2] for span in handled] == [
        "_wish",
        "other",
    ]
    assert [(child_of(span, received), span.status.status_code) for span in handled] == [(True, StatusCode.OK)] * 2


def test_a_saga_s_span_names_the_instance(desk, target):
    saga = make_ledger("pessimistic", "TracedLedger")
    endpoint = make_endpoint(saga)
    deploy(target, endpoint)
    endpoint.observe(desk.observed.telemetry)
    with endpoint.open(desk.database) as bus:
        bus.send(Open("traced"), to="Sales")

    assert endpoint.process_one(desk.database).kind is Kind.HANDLED

    (handled,) = [each for each in desk.observed.spans() if each.kind is SpanKind.INTERNAL]
    sent = desk.observed.spans(SEND)[-1]
    assert handled.attributes["nservicebus.handler.saga_id"] == sent.attributes["nservicebus.originating_saga_id"]
    assert child_of(sent, handled)


def test_a_saga_s_timeout_starts_a_trace_with_a_link_and_what_it_sends_goes_on(desk, target, monkeypatch):
    monkeypatch.setitem(GATES, "later", lambda saga, context: context.request_timeout(timedelta(0), Nudge()))
    endpoint = make_endpoint(make_ledger("pessimistic", "TracedLedger"))
    deploy(target, endpoint)
    endpoint.observe(desk.observed.telemetry)
    with endpoint.open(desk.database) as bus:
        bus.send(Open("timed", 1, "later"), to="Sales")

    assert endpoint.process_one(desk.database).kind is Kind.HANDLED
    move_due(desk.database, "Sales")
    assert endpoint.process_one(desk.database).kind is Kind.HANDLED

    _, requested, _, noted = desk.observed.spans(SEND)
    started, timed_out = desk.observed.spans(PROCESS)
    assert requested.context.trace_id == started.context.trace_id
    assert (timed_out.parent, links(timed_out)) == (None, [(requested.context.trace_id, requested.context.span_id)])
    assert noted.context.trace_id == timed_out.context.trace_id != started.context.trace_id


def test_a_plain_function_s_messages_have_a_span_too(desk):
    desk.place()
    pipeline = pipeline_with(
        desk.database, "Sales", lambda message, connection: None, observers=[desk.observed.telemetry.pipeline("Sales")]
    )

    assert pipeline.process_one().kind is Kind.HANDLED

    assert child_of(desk.observed.only(PROCESS), desk.observed.only(SEND))


# ------------------------------------------------------------------------------------------------ failures
def test_a_failing_handler_sets_the_status_and_records_the_exception(desk):
    desk.place("fail")
    assert desk.run() is Kind.MOVED_TO_ERROR

    received, handled = desk.observed.only(PROCESS), desk.observed.only("Desk._wish")
    for span in (received, handled):
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "no such order")
        recorded_error = exception_of(span)
        assert (recorded_error["exception.type"], recorded_error["exception.message"]) == (
            "builtins.ValueError",
            "no such order",
        )
        assert "in _wish" in recorded_error["exception.stacktrace"]
    assert desk.headers("error")["traceparent"] == parent_header(desk.observed.spans(SEND)[0])


def test_each_attempt_has_a_span_under_the_same_send(desk):
    sales = desk.make("Sales", Place, desk._wish, recoverability=Recoverability(immediate_retries=2, delayed_retries=0))
    desk.place("fail")
    kinds = [desk.run(sales) for _ in range(3)]

    sent = desk.observed.spans(SEND)[0]
    assert kinds == [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert [child_of(span, sent) for span in desk.observed.spans(PROCESS)] == [True] * 3


def test_what_is_tried_again_later_starts_a_trace_with_a_link(desk):
    """NServiceBus's PopulateRecoverabilityTraceMetadataBehavior."""
    policy = Recoverability(immediate_retries=0, delayed_retries=1, delay_increase=timedelta(0))
    sales = desk.make("Sales", Place, desk._wish, recoverability=policy)
    desk.place("fail")
    assert desk.run(sales) is Kind.DELAYED
    move_due(desk.database, "Sales")
    again = desk.headers("Sales")
    assert desk.run(sales) is Kind.MOVED_TO_ERROR

    sent, (_, second) = desk.observed.spans(SEND)[0], desk.observed.spans(PROCESS)
    assert (again[TRACE], desk.headers("error")[TRACE]) == ("True", "True")
    assert (second.parent, links(second)) == (None, [(sent.context.trace_id, sent.context.span_id)])


def test_a_send_without_a_destination_fails_the_attempt(desk):
    sales = desk.make("Sales", Place, lambda message, context: context.send(Bill()) and None)
    desk.place()
    desk.run(sales)

    failed = [each for each in desk.observed.spans() if each.status.status_code is StatusCode.ERROR]
    assert [span.kind for span in failed] == [SpanKind.CONSUMER, SpanKind.INTERNAL]


def test_a_send_that_cannot_be_encoded_fails_its_span(desk):
    sales = desk.make(
        "Sales",
        Place,
        lambda message, context: context.send(Bill(), to="Billing", headers={"NServiceBus.MessageId": ""}) and None,
    )
    desk.place()
    desk.run(sales)

    sent = desk.observed.spans(SEND)[-1]
    assert sent.status.status_code is StatusCode.ERROR
    assert exception_of(sent)["exception.type"] == "rowpost.errors.InvalidMessage"


def test_a_message_without_a_handler_fails(desk):
    desk.place()
    desk.run(desk.make("Sales", Bill, desk._nothing))

    received = desk.observed.only(PROCESS)
    assert received.status.status_code is StatusCode.ERROR
    assert exception_of(received)["exception.type"] == "rowpost.errors.NoHandler"


def test_an_error_without_a_text_fails_as_any_other(desk):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def handle(message, context):
        raise Mute

    desk.place()
    assert desk.run(desk.make("Sales", Place, handle)) is Kind.MOVED_TO_ERROR

    assert desk.observed.only(PROCESS).status.description == "(the exception has no text: RuntimeError)"


def test_what_cannot_be_committed_fails(desk):
    sales = desk.make("Sales", Place, lambda message, context: context.send(Bill(), to="Nowhere") and None)
    desk.place()
    assert desk.run(sales) is Kind.MOVED_TO_ERROR

    received = desk.observed.only(PROCESS)
    assert received.status.status_code is StatusCode.ERROR
    assert "Nowhere" in exception_of(received)["exception.message"]


def test_a_lost_connection_ends_the_span(desk, target, open_database):
    if target.settings.engine != "postgresql":
        pytest.skip("ends the session with a function of PostgreSQL")
    admin = open_database()

    def handle(message, context):
        pid = context.connection.info.backend_pid
        admin.driver_connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        context.connection.execute("SELECT 1")

    sales = desk.make("Sales", Place, handle)
    desk.place()
    pipeline = pipeline_with(open_database(), "Sales", sales, observers=[desk.observed.telemetry.pipeline("Sales")])
    with pytest.raises(DatabaseUnavailable):
        pipeline.process_one()

    assert desk.observed.only(PROCESS).status.status_code is StatusCode.ERROR
    assert not get_current_span().get_span_context().is_valid


# ------------------------------------------------------------------------------------------------ modes, batches, outbox
@pytest.mark.parametrize("mode", MODES)
def test_every_transaction_mode_has_the_same_spans(desk, mode):
    desk.place()
    assert desk.run(desk.make("Sales", Place, desk._wish, transaction_mode=mode)) is Kind.HANDLED

    assert Counter(span.name for span in desk.observed.spans()) == {SEND: 2, PROCESS: 1, "Desk._wish": 1}
    assert desk.headers("Billing")["traceparent"] == parent_header(desk.observed.spans(SEND)[-1])


def test_what_is_sent_at_once_has_a_span_although_its_handler_fails(desk):
    desk.place("at once")
    assert desk.run() is Kind.MOVED_TO_ERROR

    sent = desk.observed.spans(SEND)[-1]
    assert desk.headers("Billing")["traceparent"] == parent_header(sent)
    assert sent.status.status_code is StatusCode.OK


def test_each_message_of_a_batch_has_a_trace_of_its_own(desk):
    desk.place("", "publish", "")
    kinds = [outcome.kind for outcome in desk.batches(5).process()]

    spans = desk.observed.spans(PROCESS)
    assert kinds == [Kind.HANDLED] * 3
    assert len({span.context.trace_id for span in spans}) == 3
    assert {span.status.status_code for span in spans} == {StatusCode.OK}


def test_a_batch_that_is_rolled_back_shows_it_and_is_traced_again(desk):
    desk.place("", "fail")
    batches = desk.batches(5)
    kinds = [outcome.kind for _ in range(3) for outcome in batches.process()]

    states = [(span.status.status_code, span.status.description) for span in desk.observed.spans(PROCESS)]
    rolled_back = (StatusCode.ERROR, "rolled back together with other messages of its batch; it is handled again")
    assert kinds[0] is Kind.MOVED_TO_ERROR
    assert kinds.count(Kind.HANDLED) == 1
    assert states == [rolled_back, (StatusCode.ERROR, "no such order"), (StatusCode.OK, None)]


def test_a_batch_whose_commit_fails_shows_it(desk):
    sales = desk.make(
        "Sales",
        Place,
        lambda message, context: context.send(Bill(), to="Nowhere" if message.wish else "Billing") and None,
    )
    desk.place("", "x")
    batches = desk.batches(5, sales)
    kinds = [outcome.kind for _ in range(4) for outcome in batches.process()]

    states = Counter(span.status.status_code for span in desk.observed.spans(PROCESS))
    assert (kinds[0], kinds.count(Kind.HANDLED), kinds.count(Kind.MOVED_TO_ERROR)) == (Kind.DEADLOCKED, 1, 1)
    assert states == {StatusCode.OK: 1, StatusCode.ERROR: 3}


def test_closing_a_pipeline_ends_what_was_not_committed(desk, open_database):
    desk.place()
    pipeline = pipeline_with(
        open_database(), "Sales", desk.sales, observers=[desk.observed.telemetry.pipeline("Sales")]
    )
    with pipeline.transaction:
        (row,) = pipeline.receive_batch(5, None)
        pipeline.attempt(rowpost.Message(*row[:4], row[4] or b""))
        assert desk.observed.spans(PROCESS) == []
        pipeline.database.rollback()
    pipeline.close()

    assert desk.observed.only(PROCESS).status.status_code is StatusCode.ERROR


def test_a_message_of_an_outbox_has_a_span_also_when_it_is_a_duplicate(desk, business_url):
    endpoint = endpoint_of("Sales", business_url)
    endpoint.observe(desk.observed.telemetry)
    headers = {"NServiceBus.EnclosedMessageTypes": TYPE, "NServiceBus.MessageId": "m-1"}
    for _ in range(2):
        Queue("Sales", desk.database).send(b'{"Number": 1}', headers)

    kinds = [endpoint.process_one(desk.database).kind for _ in range(2)]

    assert kinds == [Kind.HANDLED] * 2
    assert [span.status.status_code for span in desk.observed.spans(PROCESS)] == [StatusCode.OK] * 2
    assert desk.headers("Billing")["traceparent"] == parent_header(desk.observed.only(SEND))


def test_threads_that_send_have_traces_of_their_own(desk, open_database):
    web = desk.make("Web", Bill, desk._nothing, send_only=True)

    def send():
        with web.open(open_database()) as bus:
            bus.send(Bill(), to="Billing")

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    named = {message.headers["traceparent"] for message in Queue("Billing", desk.database).browse(9)}
    assert named == {parent_header(span) for span in desk.observed.spans(SEND)}
    assert len(named) == 4


# ------------------------------------------------------------------------------------------------ beside NServiceBus
@pytest.mark.parametrize("name", ["send-traced", "delayed-traced", "publish-traced"])
def test_a_recorded_row_of_nservicebus_is_the_parent_or_the_link(desk, target, make_queue, sql, name):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    row = recorded(name)
    came = json.loads(row["headers"])
    endpoint = Endpoint("Billing")
    for cls in ("BillOrder", "OrderPlaced"):
        endpoint.handles(f"Shop.Messages.{cls}", bytes)(
            lambda message, context: context.send(Bill(), to="Sales") and None
        )
    endpoint.observe(desk.observed.telemetry)
    sql.insert_minimal("Billing", row["headers"], row["body"].encode())

    assert endpoint.process_one(desk.database).kind is Kind.HANDLED

    received, sent = desk.observed.only(PROCESS), desk.observed.only(SEND)
    trace, span = (int(part, 16) for part in came["traceparent"].split("-")[1:3])
    if name == "send-traced":
        assert (received.context.trace_id, received.parent.span_id, links(received)) == (trace, span, [])
    else:
        assert (received.parent, links(received)) == (None, [(trace, span)])
    assert received.attributes["nservicebus.version"] == came["NServiceBus.Version"]
    assert sent.context.trace_id == received.context.trace_id
    assert desk.headers("Sales")["traceparent"] == parent_header(sent)


@pytest.mark.parametrize("new_trace", ["False", "True"])
def test_state_and_baggage_go_on(desk, new_trace):
    """W3C's Trace Context and Baggage; values are escaped as .NET's Uri.EscapeDataString does it."""
    came = {
        "traceparent": f"00-{'1' * 32}-{'2' * 16}-01",
        "tracestate": "a=1,b=2",
        "baggage": "user=%C3%A4%20b,plus=a%2Bb",
        TRACE: new_trace,
    }
    seen = []

    def handle(message, context):
        seen.append(dict(baggage.get_all()))
        context.send(Bill(), to="Billing")

    with desk.make("Web", Bill, desk._nothing, observed=False, send_only=True).open(desk.database) as bus:
        bus.send(Place(), to="Sales", headers=came)
    desk.run(desk.make("Sales", Place, handle))

    sent = desk.headers("Billing")
    assert (sent["tracestate"], sent["baggage"]) == ("a=1,b=2", came["baggage"])
    assert seen == [{"user": "ä b", "plus": "a+b"}]


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": None},
        {"traceparent": ""},
        {"traceparent": "00-nonsense"},
        {"traceparent": f"00-{'0' * 32}-{'0' * 16}-01"},
        {"traceparent": "x" * 100_000},
        {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "=,;" * 1000, "baggage": "%,=;%zz=" * 1000},
        {"tracestate": None, "baggage": None, TRACE: None},
        {"baggage": "=" * 70_000, TRACE: "true"},
    ],
)
def test_whatever_a_sender_wrote_is_handled(desk, headers):
    with desk.make("Web", Bill, desk._nothing, observed=False, send_only=True).open(desk.database) as bus:
        bus.send(Place(), to="Sales", headers={**headers, "NServiceBus.SagaType": "x" * 50_000})

    assert desk.run() is Kind.HANDLED

    received = desk.observed.only(PROCESS)
    assert len(received.attributes["nservicebus.saga.saga_type"]) < 5000
    assert desk.headers("Billing")["traceparent"] == parent_header(desk.observed.only(SEND))


# ------------------------------------------------------------------------------------------------ off
def called_while(function):
    """The Python functions that are called: their files and names, each with its number of calls."""
    calls = Counter()

    def note(frame, event, _):
        if event == "call":
            calls[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("size", [1, 5])
def test_without_telemetry_no_call_is_made_for_it(desk, size):
    sales = desk.make("Sales", Place, desk._wish, observed=False)
    for each in (desk.sales, desk.billing):
        each.observe(None)
    desk.place("", "publish")
    batches = Batches(pipeline_with(desk.database, "Sales", sales), BatchSize(size, None, now=size))

    calls = called_while(lambda: [batches.process() for _ in range(2)])

    def times(file, name):
        return calls[str(ROOM / file), name]

    ours = [file for file, _ in calls if file.startswith(str(ROOM))]
    assert not [file for file in ours if "telemetry" in file or file.endswith("observer.py")]
    assert not [file for file, _ in calls if "opentelemetry" in file]
    sends = times("handling/context.py", "Bus._collect")
    handled = times("handling/handlers.py", "RegisteredHandler.call")
    assert (sends, handled, times("endpoint/endpoint.py", "Endpoint.handle")) == (2, 2, 2)
    assert sum(
        times("pipeline/within_transaction.py", f"WithinTransaction.{name}") for name in ("handle", "attempt")
    ) in (2, 4)


def test_meters_alone_touch_no_header(desk):
    desk.observed = Observed(traces=False)
    sales = desk.make("Sales", Place, desk._wish)
    desk.place(endpoint=sales)
    desk.run(sales)

    assert "traceparent" not in desk.headers("Billing")
    assert desk.observed.spans() == []
    assert desk.observed.counts()["nservicebus.messaging.successes"] == 1
