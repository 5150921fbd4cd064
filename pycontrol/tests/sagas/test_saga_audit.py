"""Changes of sagas are reported to ServiceControl as NServiceBus's plugin does, compared with the row that it sent."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.settings.service_control import ServiceControlSettings
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import type_name
from tests.support.counting import CountingDialect
from tests.support.recorded_rows import differences, form, recorded, recorded_headers
from tests.support.sagas import GATES, KINDS, Add, Close, Noted, Nudge, Open, deploy, make_desk
from tests.support.sagas import audited as audited_endpoint
from tests.support.schema import named
from tests.support.workers import Running

__all__ = ["make_desk"]

TYPE = "ServiceControl.EndpointPlugin.Messages.SagaState.SagaUpdatedMessage"
ROW = "service-control-saga-updated-message"
CONTROL = '"Particular.ServiceControl"'


@pytest.fixture
def control(make_queue):
    return make_queue("Particular.ServiceControl")


def report_to(desk, queue=CONTROL, *, audit=True):
    desk.endpoint.report_to(ServiceControlSettings(named(queue), saga_audit=audit), desk.database)


@pytest.fixture
def desk(make_desk, control):
    found = make_desk("pessimistic")
    report_to(found)
    return found


def reported(control):
    return [
        json.loads(message.body)
        for message in control.browse(100)
        if message.headers["NServiceBus.EnclosedMessageTypes"] == TYPE
    ]


def assert_same_form(ours, theirs, at=""):
    """Objects have the same properties in the same order, with values of the same types and forms."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), at
        for name, value in theirs.items():
            assert_same_form(ours[name], value, f"{at}.{name}")
    elif isinstance(theirs, list):
        for each, value in zip(ours, theirs, strict=True):
            assert_same_form(each, value, f"{at}[]")
    else:
        assert type(ours) is type(theirs), at
        if isinstance(theirs, str):
            assert form("", ours) == form("", theirs), at


# ------------------------------------------------------------------------------------------------ beside the recorded row
@pytest.mark.engine_schema("the recorded row has the engine's own schema")
def test_a_change_is_reported_as_the_recorded_one(desk, control, target):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    GATES["late"] = lambda saga, context: context.request_timeout(timedelta(seconds=2), Nudge())
    desk.handle(
        Open("A", 1), **{"NServiceBus.MessageId": "first", "NServiceBus.ReplyToAddress": '"public"."Net.Sales"'}
    )
    before = datetime.now(UTC)

    desk.handle(Add("A", 2, "late"), **{"NServiceBus.MessageId": "second"})

    message = control.browse(10)[-1]
    ours, theirs = json.loads(message.body), json.loads(recorded(ROW)["body"])
    assert differences(message.headers, recorded_headers(ROW)) == {}
    assert message.expires is None
    # Ledger sends its timeout first, and the recorded saga sent it last
    ours["ResultingMessages"].reverse()
    state, recorded_state = (json.loads(each.pop("SagaState")) for each in (ours, theirs))
    assert list(recorded_state)[-3:] == list(state)[-3:] == ["Id", "Originator", "OriginalMessageId"]
    assert state == {
        "Account": "A", "Total": 3, "Seen": [1, 2], "Id": ours["SagaId"], "Originator": '"public"."Net.Sales"', "OriginalMessageId": "first",
    }  # fmt: skip
    assert ours["Initiator"].pop("InitiatingMessageId") == "second"
    theirs["Initiator"].pop("InitiatingMessageId")
    assert_same_form(ours, theirs)
    assert ours["Initiator"] | {"TimeSent": None, "OriginatingMachine": None} == {
        "MessageType": "Ledger.Add", "IsSagaTimeoutMessage": False, "TimeSent": None,
        "OriginatingMachine": None, "OriginatingEndpoint": "Sales", "Intent": "Send",
    }  # fmt: skip
    noted, late = ours["ResultingMessages"]
    assert (noted["MessageType"], noted["DeliveryDelay"], noted["Destination"]) == (
        type_name(Noted),
        None,
        '"public"."audit"',
    )
    assert (late["MessageType"], late["DeliveryDelay"], late["Destination"]) == (
        type_name(Nudge),
        "00:00:02",
        '"public"."Sales"',
    )
    assert noted["ResultingMessageId"] == Queue("audit", desk.database).browse(10)[-1].message_id
    times = [datetime.fromisoformat(ours[name]) for name in ("StartTime", "FinishTime")]
    assert before <= times[0] <= datetime.fromisoformat(late["TimeSent"]) <= times[1] <= datetime.now(UTC)


# ------------------------------------------------------------------------------------------------ new, updated, completed
@pytest.mark.parametrize("concurrency", KINDS)
def test_an_instance_is_new_then_updated_then_completed(make_desk, control, concurrency):
    desk = make_desk(concurrency)
    report_to(desk)

    for message in (Open("A"), Add("A"), Close("A")):
        assert desk.handle(message).kind is Kind.HANDLED

    found = reported(control)
    assert [(each["IsNew"], each["IsCompleted"]) for each in found] == [(True, False), (False, False), (False, True)]
    assert len({each["SagaId"] for each in found}) == 1
    assert {(each["SagaType"], each["Endpoint"]) for each in found} == {(desk.saga.declaration.name, "Sales")}
    assert [json.loads(each["SagaState"])["Total"] for each in found] == [0, 1, 1]


def test_an_instance_that_one_message_starts_and_completes_is_both(desk, control):
    GATES["finish"] = lambda saga, context: saga.complete()

    desk.handle(Open("A", 1, "finish"))

    assert [(each["IsNew"], each["IsCompleted"]) for each in reported(control)] == [(True, True)]


def test_a_message_that_finds_no_instance_changes_none(desk, control):
    assert desk.handle(Add("A")).kind is Kind.DISCARDED

    assert reported(control) == []


def test_messages_without_a_destination_or_in_a_transaction_of_their_own_are_results_too(desk, control):
    def more(saga, context):
        context.publish(Noted("A", "published"))
        context.send(Noted("A", "at once"), to="Billing", immediate=True)

    GATES["more"] = more

    desk.handle(Open("A", 1, "more"))

    ((published, at_once, last),) = [each["ResultingMessages"] for each in reported(control)]
    assert (published["Intent"], published["Destination"]) == ("Publish", None)
    assert at_once["ResultingMessageId"] == Queue("Billing", desk.database).browse(1)[0].message_id
    assert last["Intent"] == "Send"


def test_a_message_without_headers_is_reported_with_what_is_known(desk, control, sql):
    sql.insert_minimal("Sales", '{"NServiceBus.EnclosedMessageTypes":"Ledger.Open"}', b'{"Account":"A"}')

    assert desk.work().kind is Kind.HANDLED

    (found,) = reported(control)
    initiator = found["Initiator"]
    assert initiator.pop("InitiatingMessageId")
    assert initiator == {
        "MessageType": "Ledger.Open", "IsSagaTimeoutMessage": False, "TimeSent": "0001-01-01T00:00:00Z",
        "OriginatingMachine": None, "OriginatingEndpoint": None, "Intent": "Send",
    }  # fmt: skip
    assert json.loads(found["SagaState"])["Originator"] is None


# ------------------------------------------------------------------------------------------------ transactions
@pytest.mark.parametrize("mode", ["receive_only", "sends_atomic_with_receive", "transaction_scope"])
def test_a_change_and_its_report_commit_together(make_desk, control, mode):
    desk = make_desk("pessimistic", mode=mode)
    report_to(desk)

    def fail(saga, context):
        raise ValueError("nothing of it stays")

    GATES["fail"] = fail
    assert desk.handle(Open("A", 1, "fail")).kind is Kind.FAILED
    assert (reported(control), desk.rows) == ([], [])
    del GATES["fail"]
    assert desk.work().kind is Kind.HANDLED

    assert len(reported(control)) == len(desk.rows) == 1


def test_each_change_within_a_batch_is_reported(desk, control):
    for message in (Open("A"), Add("A"), Open("B")):
        desk.send(message)
    pipeline = Pipeline(desk.target.connect(), "Sales", desk.endpoint)

    outcomes = Batches(pipeline, BatchSize(10, None, now=10)).process()
    pipeline.close()

    assert [each.kind for each in outcomes] == [Kind.HANDLED] * 3
    assert sorted((json.loads(each["SagaState"])["Account"], each["IsNew"]) for each in reported(control)) == [
        ("A", False),
        ("A", True),
        ("B", True),
    ]


def test_the_copy_in_the_audit_queue_says_what_changed(make_desk, control):
    desk = make_desk("pessimistic", audit_queue="audit")
    report_to(desk)

    for message in (Open("A"), Add("A"), Close("A")):
        desk.handle(message)

    (saga_id,) = {each["SagaId"] for each in reported(control)}
    headers = [
        message.headers
        for message in Queue("audit", desk.database).browse(20)
        if "NServiceBus.ProcessingEnded" in message.headers
    ]
    assert [each["ServiceControl.SagaStateChange"] for each in headers] == [
        f"{saga_id}:New",
        f"{saga_id}:Updated",
        f"{saga_id}:Completed",
    ]


# ------------------------------------------------------------------------------------------------ what it costs, and what may be wrong
@pytest.mark.parametrize("audit", [False, True])
def test_a_report_takes_no_round_trip_of_its_own(make_desk, control, audit):
    desk = make_desk("pessimistic")
    desk.handle(Open("A"))
    report_to(desk, audit=audit)
    desk.handle(Add("A"))
    database = desk.pipelines["Sales"].database
    counting = database.dialect = CountingDialect(database.dialect)

    desk.handle(Add("A"))

    assert counting.trips == ["execute", "execute", "execute_all"]
    assert len(reported(control)) == (2 if audit else 0)


def test_the_probe_leaves_no_message(desk, control):
    assert control.browse(5) == []


def test_a_missing_queue_is_logged_and_sagas_go_on_without_reports(make_desk, caplog):
    desk = make_desk("pessimistic")

    report_to(desk, "Nowhere")

    assert desk.handle(Open("A")).kind is Kind.HANDLED
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "Nowhere" in record.getMessage()
    assert "Sales" in record.getMessage()


def test_without_the_queue_that_was_there_a_change_fails_with_its_name_until_it_is_there_again(
    make_desk, make_queue, sql
):
    desk, name = make_desk("pessimistic"), "Gone.ServiceControl"
    make_queue(name)
    report_to(desk, f'"{name}"')
    sql.drop_queue(name)

    failed = desk.handle(Open("A"))
    make_queue(name)

    assert failed.kind is Kind.FAILED
    assert name in failed.error
    assert desk.work().kind is Kind.HANDLED


def test_a_state_that_cannot_be_written_completes_all_the_same(desk, control):
    """Nothing stores the state of a complete saga, so that a report must not fail on it."""

    def spoil(saga, context):
        saga.state.total = float("nan")

    desk.handle(Open("A"))
    GATES["spoil"] = spoil

    assert desk.handle(Close("A", "spoil")).kind is Kind.HANDLED

    assert desk.rows == []
    assert list(json.loads(reported(control)[-1]["SagaState"])) == ["Id", "Originator", "OriginalMessageId"]


# ------------------------------------------------------------------------------------------------ workers
@pytest.mark.parametrize("audit", [True, False])
def test_workers_report_as_the_environment_says(shop, target, control, audit):
    deploy(target, audited_endpoint)
    settings = shop.settings()
    one = {
        "handler": "tests.support.sagas:audited",
        "limit": 1,
    }  # a second worker may handle Add before Open, when no saga has begun
    queues = tuple(replace(each, worker=each.worker and replace(each.worker, **one)) for each in settings.queues)
    settings = replace(
        settings, queues=queues, service_control=ServiceControlSettings(named(CONTROL), 0, 0, saga_audit=audit)
    )
    account = shop.name

    with audited_endpoint.open(shop.queue.database) as bus:
        for message in (Open(account, 1), Add(account, 2)):
            bus.send(message, to=shop.name)
    with Running(settings) as supervisor:
        supervisor.idle()

    assert [json.loads(each["SagaState"])["Total"] for each in reported(control)] == ([1, 3] if audit else [])
