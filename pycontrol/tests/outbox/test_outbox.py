"""Outboxes, on every engine that can be reached: the procedures, and a message that uses two databases.

The tests of killed processes are in `test_outbox_crashes.py`.
"""

from collections import Counter
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from threading import Thread
from types import SimpleNamespace
from uuid import uuid4

import pytest

from rowpost.database.connection import connect_url
from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import (
    AlreadyDispatched,
    AlreadyHandled,
    DatabaseUnavailable,
    HandlerBrokeTransaction,
    InvalidCount,
    InvalidMessageId,
    InvalidOutboxEndpoint,
    PermissionDenied,
    SchemaMissing,
    SettingsError,
)
from rowpost.outbox import cleanup
from rowpost.outbox.cleanup import clean, clean_dispatches, send_left_behind
from rowpost.outbox.declaration import Outbox, decode_outgoing, encode_outgoing
from rowpost.pipeline.modes import OtherDatabases
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.settings.databases import OutboxSettings
from rowpost.settings.engine import engine_of
from rowpost.settings.environment import QueueSettings
from rowpost.transport.queue import Queue
from rowpost.wire.outgoing import AddressedMessage
from rowpost.workers.tasks import outbox_cleaner
from tests.support.crashing import TYPE, Order, at_step
from tests.support.endpoints import OrderPlaced
from tests.support.ledgers import business, ledger, order, remembered, sent
from tests.support.logins import logins
from tests.support.outboxes import endpoint_of, handle_all, pipeline_of
from tests.support.workers import eventually

__all__ = ["business", "order"]

KEY = {"endpoint": "Sales", "message_id": "m-1"}
TYPED = {"NServiceBus.EnclosedMessageTypes": TYPE}
RETRY_ID = "ServiceControl.Retry.UniqueMessageId"
RETRIED = {
    "NServiceBus.EnclosedMessageTypes": TYPE,
    RETRY_ID: "4711",
    "ServiceControl.Retry.AcknowledgementQueue": "Billing",
}
KINDS = pytest.mark.parametrize("pessimistic", [False, True], ids=["optimistic", "pessimistic"])


@pytest.fixture
def pipe(open_database, business_url):
    """Makes a pipeline of Sales with an outbox, on a connection of its own."""
    made = []

    def make(*, url=business_url, step=lambda name: None, then=lambda context: None, pessimistic=False, endpoint=None):
        endpoint = endpoint or endpoint_of("Sales", url, pessimistic=pessimistic, then=then)
        made.append(pipeline_of(open_database(), endpoint, step=step))
        return made[-1]

    yield make
    for each in made:
        each.close()


def left_behind(business):
    return [row[0] for row in business.run("SELECT message_id FROM rowpost.outbox_operations")]


def days_ago(engine, days):
    if engine == "postgresql":
        return f"now() AT TIME ZONE 'UTC' - interval '{days} days'"
    return f"DATEADD(DAY, -{days}, SYSUTCDATETIME())"


def make_old(business, days, message_id="m-1"):
    then = days_ago(business.database.engine, days)
    business.run(f"UPDATE rowpost.outbox SET handled_at = {then} WHERE message_id = ?", message_id)


def leave_behind(business, number=1, message_id="m-1"):
    """What a worker leaves that dies after the business commit."""
    operation = AddressedMessage(
        {"NServiceBus.MessageId": f"out of {message_id}"}, b'{"Number":%d}' % number, "Billing"
    )
    key = {"endpoint": "Sales", "message_id": message_id}
    business.run("INSERT INTO business (number) VALUES (?)", number)
    business.database.call("record_handled", **key)
    business.database.call("store_operations", **key, operations=encode_outgoing([operation]))


# ------------------------------------------------------------------ the procedures
def test_a_message_is_not_handled_until_it_is_recorded(business):
    before = business.database.call("find_handled", **KEY)
    business.database.call("record_handled", **KEY)
    ((operations, age_ms),) = business.database.call("find_handled", **KEY)

    assert before == []
    assert operations is None
    assert 0 <= age_ms < 60_000


def test_operations_are_found_until_they_are_settled(business):
    business.database.call("record_handled", **KEY)
    business.database.call("store_operations", **KEY, operations='["é"]')
    stored = business.database.call("find_handled", **KEY)[0][0]
    business.database.call("settle_operations", **KEY)

    assert stored == '["é"]'
    assert business.database.call("find_handled", **KEY)[0][0] is None


@pytest.mark.promise("outbox-handles-once")
def test_a_message_is_recorded_once(business):
    business.database.call("record_handled", **KEY)

    with pytest.raises(AlreadyHandled):
        business.database.call("record_handled", **KEY)


@pytest.mark.parametrize("other", [{"endpoint": "Billing"}, {"message_id": "M-1"}, {"message_id": "m-2"}])
def test_endpoints_and_message_ids_are_told_apart_by_case_too(business, other):
    business.database.call("record_handled", **KEY)

    business.database.call("record_handled", **{**KEY, **other})

    assert len(remembered(business)) == 2


@pytest.mark.parametrize("procedure", ["find_handled", "record_handled"])
@pytest.mark.parametrize("message_id", ["", "x" * 201, None])
@pytest.mark.promise("outbox-long-message-id")
def test_a_message_id_that_would_be_cut_off_is_refused(business, procedure, message_id):
    with pytest.raises(InvalidMessageId):
        business.database.call(procedure, endpoint="Sales", message_id=message_id)


@pytest.mark.parametrize("procedure", ["find_handled", "record_handled", "record_dispatch"])
@pytest.mark.parametrize("endpoint", ["", "x" * 201, None])
def test_an_endpoint_that_would_be_cut_off_is_refused(business, procedure, endpoint):
    with pytest.raises(InvalidOutboxEndpoint):
        business.database.call(procedure, endpoint=endpoint, message_id="m-1")


def test_what_ends_a_message_of_an_endpoint_that_is_too_long_touches_no_other(business):
    key = {"endpoint": "x" * 200, "message_id": "m-1"}
    business.database.call("record_dispatch", **key)
    business.database.call("record_handled", **key)
    business.database.call("store_operations", **key, operations="[]")

    for procedure in ("forget_dispatch", "settle_operations"):
        business.database.call(procedure, **(key | {"endpoint": "x" * 201}))

    assert business.database.call("find_handled", **key)[0][0] == "[]"
    with pytest.raises(AlreadyDispatched):
        business.database.call("record_dispatch", **key)


def test_a_message_id_of_200_characters_is_kept_whole(business):
    business.database.call("record_handled", endpoint="Sales", message_id="x" * 199 + "a")
    business.database.call("record_handled", endpoint="Sales", message_id="x" * 199 + "b")

    assert [each[-1] for each in remembered(business)] == ["a", "b"]


def test_a_dispatch_is_recorded_once_until_it_is_forgotten(database, business):
    database.call("record_dispatch", **KEY)
    with pytest.raises(AlreadyDispatched):
        database.call("record_dispatch", **KEY)

    database.call("forget_dispatch", **KEY)

    database.call("record_dispatch", **KEY)


@pytest.mark.promise("outbox-retention")
def test_records_older_than_the_retention_time_are_removed_unless_they_are_not_dispatched(business):
    for number in (1, 2, 3):
        leave_behind(business, number, f"m-{number}")
    business.database.call("settle_operations", endpoint="Sales", message_id="m-1")
    business.database.call("settle_operations", endpoint="Sales", message_id="m-3")
    make_old(business, 8, "m-1")
    make_old(business, 8, "m-2")
    make_old(business, 6, "m-3")

    removed = clean(business.database, timedelta(days=7).total_seconds())

    assert (removed, remembered(business)) == (1, ["m-2", "m-3"])


@pytest.mark.promise("outbox-retention")
def test_old_records_are_removed_in_batches_of_the_requested_size(business):
    for number in range(5):
        business.database.call("record_handled", endpoint="Sales", message_id=f"m-{number}")
        make_old(business, 9 - number, f"m-{number}")

    counts = [business.database.call("clean_outbox", retention_seconds=86_400, count=2)[0][0] for _ in "123"]

    assert counts == [2, 2, 1]


def test_old_dispatches_are_forgotten(database, business, sql):
    database.call("record_dispatch", **KEY)
    database.call("record_dispatch", endpoint="Sales", message_id="m-2")
    sql.run(f"UPDATE rowpost.dispatch SET dispatched_at = {days_ago(database.engine, 8)} WHERE message_id = 'm-1'")

    removed = clean_dispatches(database, timedelta(days=7).total_seconds())

    assert (removed, sql.run("SELECT message_id FROM rowpost.dispatch")) == (1, [("m-2",)])


def test_what_left_late_is_remembered_for_the_whole_time_again(business):
    leave_behind(business)
    make_old(business, 30)

    business.database.call("settle_operations", **KEY)

    assert clean(business.database, timedelta(days=7).total_seconds()) == 0


@pytest.mark.parametrize("count", [0, 4001, None])
@pytest.mark.parametrize("procedure", ["clean_outbox", "clean_dispatches"])
def test_a_batch_has_a_size_at_which_no_server_locks_the_table(database, business, procedure, count):
    with pytest.raises(InvalidCount):
        database.call(procedure, retention_seconds=1, count=count)


@pytest.mark.parametrize("seconds", [-1, None])
def test_a_retention_time_or_an_age_cannot_be_negative(database, business, seconds):
    for procedure in ("clean_outbox", "clean_dispatches"):
        with pytest.raises(InvalidCount):
            database.call(procedure, retention_seconds=seconds, count=1)
    with pytest.raises(InvalidCount):
        database.call("list_undispatched", seconds=seconds, count=1)


def test_what_has_not_left_is_listed_oldest_first(business):
    for number in (1, 2, 3):
        leave_behind(business, number, f"m-{number}")
    make_old(business, 2, "m-2")
    make_old(business, 1, "m-1")

    rows = business.database.call("list_undispatched", seconds=3600, count=10)

    assert [row[:2] for row in rows] == [("Sales", "m-2"), ("Sales", "m-1")]
    assert business.database.call("list_undispatched", seconds=3600, count=10, endpoints=["Billing"]) == []
    assert rows[1][2] == pytest.approx(86_400_000, abs=60_000)


def test_a_page_begins_after_the_last_message_of_the_one_before(business):
    for number in range(5):
        leave_behind(business, number, f"m-{number}")
        make_old(business, 1 + number // 3, f"m-{number}")

    found, after = [], {}
    while page := business.database.call("list_undispatched", seconds=0, count=2, **after):
        found += [row.message_id for row in page]
        after = {
            "after_ms": page[-1].handled_ms,
            "after_endpoint": page[-1].endpoint,
            "after_message_id": page[-1].message_id,
        }

    assert sorted(found) == [f"m-{number}" for number in range(5)]


def test_the_status_says_what_has_not_left_and_for_how_long(business):
    leave_behind(business, 1, "m-1")
    leave_behind(business, 2, "m-2")
    make_old(business, 1, "m-2")

    (_, since, undispatched, oldest_ms, size, foreign) = business.database.call("outbox_status")[0]
    others = business.database.call("outbox_status", endpoints=["Billing"])[0]

    assert (undispatched, foreign) == (2, 0)
    assert (others.undispatched, others.oldest_undispatched_ms, others.foreign_undispatched) == (0, None, 2)
    assert oldest_ms == pytest.approx(86_400_000, abs=60_000)
    assert since is not None
    assert business.babelfish or size > 0


def test_a_member_of_rowpost_endpoint_works_the_outbox_and_reads_no_table_of_it(business, database):
    if business.database.engine != "postgresql":
        pytest.skip("Babelfish has no users without a login; procedures reach their tables through ownership chaining")
    business.run("DROP ROLE IF EXISTS rowpost_outbox_test")
    business.run("CREATE ROLE rowpost_outbox_test IN ROLE rowpost_endpoint")
    business.run("SET ROLE rowpost_outbox_test")
    try:
        leave = [("record_handled", None, KEY), ("store_operations", None, {**KEY, "operations": "[]"})]
        business.database.call_all([*leave, ("find_handled", None, KEY), ("settle_operations", None, KEY)])
        business.database.call("outbox_status")
        for procedure in ("clean_outbox", "clean_dispatches"):
            with pytest.raises(PermissionDenied, match="rowpost_operator"):
                business.database.call(procedure, retention_seconds=1, count=1)
        with pytest.raises(business.database.dialect.driver_error(), match="permission denied"):
            business.run("SELECT message_id FROM rowpost.outbox")
    finally:
        business.run("RESET ROLE")
        business.run("DROP ROLE rowpost_outbox_test")


def test_a_supervisor_whose_login_may_not_clean_is_warned_once_and_still_sends_what_was_left_behind(
    business, business_url, target
):
    if business.database.engine != "postgresql":
        pytest.skip("a login of Babelfish belongs to one database")
    leave_behind(business, 1, "m-1")
    make_old(business, 1, "m-1")
    seen = []
    with logins(business, business_url) as made:
        name = made.make("cleaner")
        business.run(f"GRANT rowpost_endpoint TO {name}")
        outbox = OutboxSettings("business", made.url(name))
        settings = replace(target.settings, outboxes=(outbox,), queues=(QueueSettings("Sales"),))
        clean_once = outbox_cleaner.OutboxCleaner(settings, seen.append)
        with target.connect() as database:
            for _ in "12":
                clean_once(database, "business")
        clean_once._disconnect("business")

    assert [type(event).__name__ for event in seen] == ["Maintained", "Warned"]
    assert "rowpost outbox clean" in seen[1].text


def test_one_session_is_elected_to_clean_until_it_ends(business, business_url):
    with (
        connect_url(engine_of(business_url), business_url) as first,
        connect_url(engine_of(business_url), business_url) as second,
    ):
        duty = (
            f"test {uuid4()}"  # a cleaner of another test may be elected for the usual one until its session has ended
        )
        elected = [each.call("elect", duty=duty)[0][0] for each in (first, second, first)]
        first.close()
        eventually(lambda: second.call("elect", duty=duty)[0][0], "the second is elected")

    assert elected == [True, False, True]


def test_a_handled_message_costs_a_small_row_however_much_it_sent_and_pages_are_used_again(business):
    if business.database.engine != "postgresql":
        pytest.skip("measured where VACUUM says when dead rows are gone; SQL Server's ghost cleanup does not")
    large = encode_outgoing([AddressedMessage({}, Random(1).randbytes(6000), "Billing")])

    def handle(numbers):
        keys = [{"endpoint": "Sales", "message_id": f"00000000-0000-0000-0000-{number:012}"} for number in numbers]
        for name, more in (
            ("record_handled", {}),
            ("store_operations", {"operations": large}),
            ("settle_operations", {}),
        ):
            business.database.call_all([(name, None, {**key, **more}) for key in keys], begin=True, commit=True)
        eventually(is_vacuumed, "the pages of 500 messages, about 4 MB, are free again")

    def is_vacuumed():
        """VACUUM leaves rows that another session's snapshot may still see, as that of an automatic ANALYZE."""
        business.run("VACUUM rowpost.outbox_operations")
        return business.value("SELECT pg_total_relation_size('rowpost.outbox_operations')") < 1_000_000

    for start in range(0, 2000, 500):
        handle(range(start, start + 500))

    assert business.value("SELECT pg_total_relation_size('rowpost.outbox')") / 2000 < 250
    assert is_vacuumed()


# ------------------------------------------------------------------ operations as JSON
@pytest.mark.parametrize(
    "operation",
    [
        AddressedMessage({"a": "1", "b": None}, b"{}", "Billing"),
        AddressedMessage({}, b"\xff\x00\xfe", "Billing@[nsb]"),
        AddressedMessage({}, "ü\u0000".encode(), topics=("Shop.A", "Shop.B")),
        AddressedMessage({}, b"", "Billing", delay=timedelta(days=100)),
        AddressedMessage({}, b"", "Billing", delay=timedelta(seconds=-1)),
        AddressedMessage({}, b"", "Billing", time_to_be_received=timedelta(milliseconds=1)),
    ],
)
def test_operations_come_back_as_they_were(operation):
    assert decode_outgoing(encode_outgoing([operation])) == [operation]


def test_a_delay_counts_from_when_the_message_was_handled():
    text = encode_outgoing([AddressedMessage({}, b"", "Billing", delay=timedelta(seconds=10))])

    assert [decode_outgoing(text, age)[0].delay for age in (4000, 60_000)] == [timedelta(seconds=6), timedelta(0)]


# ------------------------------------------------------------------ declarations
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "receive_only"])
@pytest.mark.promise("outbox-needs-receive-only")
def test_an_outbox_is_refused_in_any_other_mode_with_the_reason(mode):
    with pytest.raises(SettingsError, match=rf"{mode}, in which .*receive_only"):
        Endpoint("Sales", transaction_mode=mode, outbox="business")


def test_an_outbox_that_nobody_named_is_refused_with_those_that_are_known(database):
    endpoint = Endpoint("Sales", transaction_mode="receive_only", outbox="busines")

    with pytest.raises(SettingsError, match=r"'busines'.*known: business"):
        Pipeline(database, "Sales", endpoint, others=OtherDatabases(outboxes={"business": "postgresql://db/shop"}))


def test_the_password_of_a_business_database_is_not_shown():
    assert "secret" not in repr(Outbox("business", url="postgresql://app:secret@db/shop"))


# ------------------------------------------------------------------ the way of a message
@KINDS
def test_a_handled_message_leaves_its_data_there_and_what_it_sent_here_and_no_traces(
    business, database, queue, order, pipe, sql, pessimistic
):
    order(1)

    kinds = handle_all(pipe(pessimistic=pessimistic))

    assert kinds == [Kind.HANDLED]
    assert (ledger(business), sent(database), queue.peek()) == ([1], [1], 0)
    assert (remembered(business), left_behind(business)) == (["m-1"], [])
    assert sql.run("SELECT message_id FROM rowpost.dispatch") == []


@KINDS
@pytest.mark.promise("outbox-handles-once")
def test_a_message_that_comes_three_times_is_handled_once(business, database, queue, order, pipe, pessimistic):
    for _ in range(3):
        order(1)

    handle_all(pipe(pessimistic=pessimistic))
    order(1)
    kinds = handle_all(pipe(pessimistic=pessimistic))

    assert kinds == [Kind.HANDLED]
    assert (ledger(business), sent(database), queue.peek()) == ([1], [1], 0)


@pytest.mark.promise("outbox-dispatches-stored")
def test_stored_messages_are_sent_without_the_handler(business, database, queue, order, pipe, sql):
    leave_behind(business, 7)
    order(1)

    kinds = handle_all(pipe())

    assert kinds == [Kind.HANDLED]
    assert (ledger(business), sent(database), queue.peek(), left_behind(business)) == ([7], [7], 0, [])


@pytest.mark.promise("outbox-dispatches-stored")
def test_messages_that_were_dispatched_are_not_sent_again(business, database, queue, order, pipe):
    leave_behind(business)
    database.call("record_dispatch", **KEY)
    order(1)

    handle_all(pipe())

    assert (ledger(business), sent(database), queue.peek(), left_behind(business)) == ([1], [], 0, [])


def test_a_message_whose_first_dispatch_failed_is_audited_once(business, database, order, pipe, sql, business_url):
    sql.empty("audit")
    order(1)
    endpoint = endpoint_of("Sales", business_url)
    endpoint.audit_queue = "audit"
    with pytest.raises(ZeroDivisionError):
        pipe(endpoint=endpoint, step=at_step("stored", lambda: 1 / 0)).process_one()
    before = Queue("audit", database).peek()

    kinds = handle_all(pipe(endpoint=endpoint))

    (copy,) = Queue("audit", database).receive(10)
    assert (before, kinds, copy.message_id) == (0, [Kind.HANDLED], "m-1")


def test_special_characters_in_headers_are_stored_and_sent(business, database, order, pipe):
    special = {"Shop.Note": 'é漢🚀/"\\\n\t', "Shop.Empty": "", "Shop.Null": None}
    order(1)
    with pytest.raises(ZeroDivisionError):
        pipe(
            then=lambda context: context.send(Order(2), to="Billing", headers={**special, **TYPED}),
            step=at_step("stored", lambda: 1 / 0),
        ).process_one()

    handle_all(pipe())

    (_, message) = Queue("Billing", database).browse(10)
    assert {name: message.headers[name] for name in special} == special


def test_an_event_whose_first_dispatch_failed_reaches_all_its_subscribers(business, database, order, pipe, make_queue):
    one, other = make_queue(), make_queue()
    for each in (one, other):
        database.call_atomically(
            "subscribe", endpoint=each.name, topic="Shop.Messages.OrderPlaced", queue_address=each.name
        )
    order(1)
    with pytest.raises(ZeroDivisionError):
        pipe(then=lambda context: context.publish(OrderPlaced(1)), step=at_step("stored", lambda: 1 / 0)).process_one()

    kinds = handle_all(pipe())

    assert kinds == [Kind.HANDLED]
    assert (one.peek(), other.peek()) == (1, 1)


def test_two_endpoints_with_one_business_database_both_handle_an_event_with_one_id(
    business, database, queue, order, pipe, make_queue, business_url
):
    other = make_queue()
    order(1)
    other.send(b'{"Number":1}', {**TYPED, "NServiceBus.MessageId": "m-1"})

    kinds = [*handle_all(pipe()), *handle_all(pipe(endpoint=endpoint_of(other.name, business_url)))]

    assert kinds == [Kind.HANDLED, Kind.HANDLED]
    assert ledger(business) == [1, 1]


@pytest.mark.promise("retry-from-error-queue")
@pytest.mark.parametrize("settled", [False, True], ids=["not sent", "sent"])
def test_a_retried_message_that_was_handled_before_is_acknowledged_once(business, database, queue, pipe, settled):
    queue.send(b'{"Number":1}', {**RETRIED, "NServiceBus.MessageId": "m-1"})
    leave_behind(business)
    if settled:
        business.database.call("settle_operations", **KEY)
        database.call("record_dispatch", **KEY)

    kinds = handle_all(pipe())

    others = [] if settled else [None]
    assert kinds == [Kind.HANDLED]
    assert [each.headers.get(RETRY_ID) for each in Queue("Billing", database).browse(10)] == [*others, "4711"]


def test_an_acknowledgement_that_the_handler_stored_is_not_sent_twice(business, database, queue, pipe):
    queue.send(b'{"Number":1}', {**RETRIED, "NServiceBus.MessageId": "m-1"})
    with pytest.raises(ZeroDivisionError):
        pipe(step=at_step("stored", lambda: 1 / 0)).process_one()

    kinds = handle_all(pipe())

    assert kinds == [Kind.HANDLED]
    assert [each.headers.get(RETRY_ID) for each in Queue("Billing", database).browse(10)] == [None, "4711"]


def test_an_expired_message_that_was_handled_still_sends_what_it_caused(business, database, queue, order, pipe, sql):
    leave_behind(business)
    order(1, time_to_be_received=timedelta(milliseconds=1))
    order(2, time_to_be_received=timedelta(milliseconds=1))
    sql.wait_until_expired("Sales")
    eventually(lambda: all(message.expired for message in queue.browse(10)), "both have expired")

    kinds = handle_all(pipe())

    assert kinds == [Kind.HANDLED, Kind.EXPIRED]
    assert (ledger(business), sent(database), queue.peek()) == ([1], [1], 0)


@KINDS
def test_a_failing_handler_leaves_nothing_and_ends_in_the_error_queue(
    business, database, queue, order, pipe, pessimistic
):
    def fail(context):
        raise ValueError("no such order")

    order(1)

    kinds = handle_all(pipe(then=fail, pessimistic=pessimistic))

    assert kinds == [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert (ledger(business), sent(database), remembered(business)) == ([], [], [])
    assert Queue("error", database).browse()[0].headers["NServiceBus.ExceptionInfo.Message"] == "no such order"


def test_a_handler_that_sends_nothing_stores_nothing_but_its_message_id(business, queue, order, pipe, sql):
    endpoint = Endpoint("Sales", transaction_mode="receive_only", outbox=pipe().processor.outbox)
    endpoint.handles(TYPE, Order)(lambda message, context: None)
    steps = []
    order(1)
    order(1)

    kinds = handle_all(pipe(endpoint=endpoint, step=steps.append))

    assert kinds == [Kind.HANDLED, Kind.HANDLED]
    assert (remembered(business), left_behind(business), "settled" in steps) == (["m-1"], [], False)


def test_an_immediate_send_leaves_though_the_handler_fails(business, database, queue, order, pipe):
    def send_and_fail(context):
        context.send(Order(99), to="Billing", immediate=True)
        raise ValueError("no such order")

    order(1)

    pipe(then=send_and_fail).process_one()

    assert (ledger(business), sent(database), queue.peek()) == ([], [99], 1)


def test_what_goes_nowhere_keeps_the_data_and_leaves_when_there_is_a_place_for_it(
    business, database, order, pipe, make_queue
):
    queue = make_queue()
    place = f"{queue.name}Later"
    order(1)

    kinds = handle_all(pipe(then=lambda context: context.send(Order(2), to=place)))
    kept = (ledger(business), sent(database), left_behind(business))
    make_queue(place)
    result = send_left_behind(database, business.database, {"Sales"}, older_than=0)

    assert kinds == [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert kept == ([1], [], ["m-1"])
    assert (result.sent, sent(database), len(Queue(place, database).browse())) == (1, [1], 1)


def test_the_business_connection_goes_by_its_name_too(business, order, pipe):
    seen = []
    order(1)

    pipe(then=lambda context: seen.append(context.enlist("business") is context.connection)).process_one()

    assert seen == [True]


def test_a_message_id_of_201_characters_goes_to_the_error_queue_at_once(business, database, queue, order, pipe):
    order(1, message_id="x" * 201)

    kinds = handle_all(pipe())

    assert kinds == [Kind.MOVED_TO_ERROR]
    assert (ledger(business), Queue("error", database).peek()) == ([], 1)


def commit(context):
    context.connection.cursor().execute("COMMIT")


def commit_and_close(context):
    commit(context)
    context.connection.close()


@pytest.mark.parametrize("end", [commit, commit_and_close])
def test_a_handler_that_commits_by_itself_is_not_run_again(business, database, queue, order, pipe, end):
    order(1)

    outcome = pipe(then=end).process_one()

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "HandlerBrokeTransaction" in outcome.error
    assert (ledger(business), sent(database), queue.peek()) == ([1], [], 0)


def test_a_handler_that_swallows_a_failed_statement_has_failed(business, database, order, pipe):
    def swallow(context):
        with suppress(context.database.dialect.driver_error()):
            context.connection.cursor().execute("INSERT INTO no_such_table (number) VALUES (1)")

    order(1)

    outcome = pipe(then=swallow).process_one()

    assert database.engine == "sqlserver" or outcome.kind is Kind.FAILED
    assert ledger(business) == sent(database)


def test_a_business_commit_that_fails_leaves_nothing(business, database, queue, order, pipe):
    if database.engine != "postgresql":
        pytest.skip("SQL Server has no deferred constraints to make a COMMIT fail")
    business.run("ALTER TABLE business ADD CONSTRAINT single UNIQUE (number) DEFERRABLE INITIALLY DEFERRED")
    business.run("INSERT INTO business (number) VALUES (1)")
    order(1)
    try:
        outcome = pipe().process_one()
    finally:
        business.run("ALTER TABLE business DROP CONSTRAINT single")

    assert outcome.kind is Kind.FAILED
    assert (queue.peek(), ledger(business), sent(database), remembered(business)) == (1, [1], [], [])


# ------------------------------------------------------------------ two workers with one message in hand
def test_optimistic_both_handle_it_and_the_second_to_commit_is_undone(
    business, database, queue, order, pipe, needs_readpast
):
    order(1)
    order(1)
    second = pipe()
    outcomes = []

    first = pipe(step=at_step("handled", lambda: outcomes.append(second.process_one().kind)))
    outcomes.append(first.process_one().kind)
    handle_all(first)
    handle_all(second)

    assert outcomes[0] is Kind.HANDLED
    assert (ledger(business), sent(database), queue.peek(), left_behind(business)) == ([1], [1], 0, [])


def test_pessimistic_the_second_waits_and_its_handler_does_not_run(
    business, database, queue, order, pipe, needs_readpast
):
    calls = []
    order(1)
    order(1)
    second = pipe(pessimistic=True, then=lambda context: calls.append("second"))
    waiting = Thread(target=handle_all, args=(second,))

    def meanwhile():
        waiting.start()
        eventually(lambda: waits(business), "the second waits")

    first = pipe(pessimistic=True, then=lambda context: calls.append("first"), step=at_step("handled", meanwhile))
    first.process_one()
    waiting.join(30)
    handle_all(first)

    assert calls == ["first"]
    assert (ledger(business), sent(database), queue.peek(), left_behind(business)) == ([1], [1], 0, [])


def waits(business):
    """Whether a session of the business database waits for a lock."""
    if business.database.engine == "postgresql":
        return business.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    return business.value("SELECT COUNT(*) FROM sys.dm_exec_requests WHERE blocking_session_id > 0")


def test_who_sends_what_another_stored_and_is_about_to_send_sends_it_alone(business, database, queue, order, pipe):
    """The narrow place: stored, and not sent yet, while somebody else looks after what is left behind."""
    order(1)
    cared = []

    first = pipe(
        step=at_step(
            "stored", lambda: cared.append(send_left_behind(database, business.database, {"Sales"}, older_than=0))
        )
    )
    kinds = handle_all(first)

    assert [each.sent for each in cared] == [1]
    assert kinds == [Kind.DEADLOCKED, Kind.HANDLED]
    assert (ledger(business), sent(database), queue.peek(), left_behind(business)) == ([1], [1], 0, [])


def test_stored_operations_that_cannot_be_read_fail_their_message_and_stop_no_other(
    business, database, queue, order, pipe
):
    leave_behind(business)
    business.run("UPDATE rowpost.outbox_operations SET operations = 'no JSON'")
    order(1)
    order(2)

    kinds = handle_all(pipe())

    assert Counter(kinds) == {Kind.FAILED: 2, Kind.MOVED_TO_ERROR: 1, Kind.HANDLED: 1}
    assert (sent(database), queue.peek()) == ([2], 0)


def test_what_belongs_to_another_queues_database_is_left_alone(business, database):
    leave_behind(business)

    result = send_left_behind(database, business.database, {"Billing"}, older_than=0)

    assert (result.sent, sent(database), left_behind(business)) == (0, [], ["m-1"])


def fill(business, endpoint, count, destination):
    """Leave as much behind as an outage does. Each message was handled a millisecond before the one with the next number."""
    operations = encode_outgoing([AddressedMessage({"NServiceBus.MessageId": "out"}, b'{"Number":1}', destination)])
    for number in range(count):
        key = {"endpoint": endpoint, "message_id": f"{endpoint}-{destination}-{number}"}
        business.database.call_all(
            [("record_handled", None, key), ("store_operations", None, {**key, "operations": operations})]
        )


def test_no_number_of_foreign_or_unsendable_messages_holds_up_the_others(business, database, monkeypatch):
    monkeypatch.setattr(cleanup, "PAGE", 3)
    fill(business, "Elsewhere", 7, "Billing")
    fill(business, "Sales", 7, "Nowhere")
    fill(business, "Sales", 8, "Billing")

    result = send_left_behind(database, business.database, {"Sales"}, older_than=0)

    assert (result.sent, len(result.failed), len(left_behind(business))) == (8, 7, 14)
    assert {text.startswith("No queue") or "Nowhere" in text for text in result.failed.values()} == {True}
    assert sent(database) == [1] * 8


def test_a_reason_is_found_without_sending(business, database):
    fill(business, "Sales", 1, "Nowhere")
    fill(business, "Sales", 1, "Billing")

    reasons = {
        row: cleanup.why_unsent(database, business.database, *row)
        for row in cleanup.list_left_behind(business.database, ["Sales"], 0)
    }

    assert "Nowhere" in reasons.pop(("Sales", "Sales-Nowhere-0"))
    assert reasons == {("Sales", "Sales-Billing-0"): None}
    assert (sent(database), len(left_behind(business))) == ([], 2)


def test_each_message_that_cannot_be_sent_is_one_event_and_then_a_reminder(
    business, database, target, business_url, monkeypatch
):
    monkeypatch.setattr(outbox_cleaner, "REMIND_S", 0.0)
    fill(business, "Sales", 2, "Nowhere")
    make_old(business, 1, "Sales-Nowhere-0")
    make_old(business, 1, "Sales-Nowhere-1")
    emitted = []
    settings = replace(target.settings, outboxes=(OutboxSettings("business", business_url),))
    cleaner = outbox_cleaner.OutboxCleaner(settings, emitted.append)

    rounds = []
    for _ in range(2):
        cleaner(database, "business")
        rounds.append([event.text for event in emitted if "cannot be sent" in getattr(event, "text", "")])
        emitted.clear()
    cleaner._disconnect("business")

    assert [len(texts) for texts in rounds] == [2, 1]
    assert "2 handled messages still cannot be sent" in rounds[1][0]


def test_messages_that_fail_after_others_were_sent_wait_an_hour_for_their_own_reminder(
    business, database, target, business_url, monkeypatch
):
    clock = SimpleNamespace(time=lambda: 0.0, monotonic=lambda: clock.now, now=0.0)
    monkeypatch.setattr(outbox_cleaner, "time", clock)
    emitted = []
    settings = replace(target.settings, outboxes=(OutboxSettings("business", business_url),))
    cleaner = outbox_cleaner.OutboxCleaner(settings, emitted.append)

    def clean(at):
        clock.now = at
        emitted.clear()
        cleaner(database, "business")
        return [event.text for event in emitted if "cannot be sent" in getattr(event, "text", "")]

    fill(business, "Sales", 1, "Nowhere")
    make_old(business, 1, "Sales-Nowhere-0")
    first = [len(clean(at)) for at in (0, 60)]
    business.run("DELETE FROM rowpost.outbox")
    business.run("DELETE FROM rowpost.outbox_operations")
    between = [len(clean(120))]
    fill(business, "Sales", 1, "Nowhere")
    make_old(business, 1, "Sales-Nowhere-0")
    second = [clean(at) for at in (4000, 4060, 8000)]
    cleaner._disconnect("business")

    assert (first, between, [len(texts) for texts in second]) == ([1, 0], [0], [1, 0, 1])
    assert "still" in second[2][0]


# ------------------------------------------------------------------ databases that are out of reach, or not what they were
def nowhere(database):
    """The URL of a server that does not answer."""
    return (
        "postgresql://127.0.0.1:1/business"
        if database.engine == "postgresql"
        else "Server=127.0.0.1,1;Database=business"
    )


def end_session(probe, connection):
    """End a session from another one."""
    if probe.database.engine == "postgresql":
        probe.run("SELECT pg_terminate_backend(?, 5000)", connection.info.backend_pid)
    else:
        probe.run(f"KILL {connection.cursor().execute('SELECT @@SPID').fetchval()}")


def test_a_business_database_that_is_down_leaves_the_message_where_it_is_uncounted(
    business, database, queue, order, pipe, sql
):
    order(1)
    pipeline = pipe(url=nowhere(database))

    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="business database 'business'"):
            pipeline.process_one()

    assert (queue.peek(), sent(database), Queue("error", database).peek()) == (1, [], 0)
    assert sql.run("SELECT attempts FROM rowpost.failure WHERE queue_key = 'Sales'") == []


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_message_that_ends_its_business_connection_leaves_nothing_and_has_failed(
    business, database, queue, order, pipe, sql, swallowed
):
    order(1)

    def lose(context):
        end_session(business, context.connection)
        with suppress(context.database.dialect.driver_error()) if swallowed else nullcontext():
            context.connection.cursor().execute("SELECT 1")

    pipeline = pipe(then=lose)
    outcomes = [pipeline.process_one() for _ in range(3)]

    assert [outcome.kind for outcome in outcomes] == [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert "business database 'business' was lost while a handler ran" in outcomes[-1].error
    assert (ledger(business), sent(database), queue.peek(), remembered(business)) == ([], [], 0, [])


@pytest.mark.parametrize("both", [False, True], ids=["business", "both"])
@pytest.mark.parametrize("pessimistic", [False, True])
def test_a_message_whose_sessions_are_over_when_it_is_stored_is_counted_and_leaves(
    business, database, queue, order, pipe, both, pessimistic, sql
):
    order(1)

    def lose(context):
        end_session(business, context.connection)
        if both:
            end_session(sql, pipeline.database.driver_connection)

    kinds = []
    for _ in range(3):  # a queue's connection that is over is the worker's to replace
        pipeline = pipe(then=lose, pessimistic=pessimistic)
        kinds.append(pipeline.process_one().kind)

    assert kinds == [Kind.FAILED, Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert (ledger(business), sent(database), queue.peek(), remembered(business)) == ([], [], 0, [])


def test_a_business_database_that_goes_away_under_a_handler_is_no_attempt_at_the_message(
    business, database, queue, order, pipe, sql, monkeypatch
):
    order(1)

    def lose(context):
        end_session(business, context.connection)
        monkeypatch.setattr(pipeline._mode, "_url", nowhere(database))

    pipeline = pipe(then=lose)
    with pytest.raises(DatabaseUnavailable, match="business database 'business'"):
        pipeline.process_one()

    assert (sql.run("SELECT attempts FROM rowpost.failure WHERE queue_key = 'Sales'"), queue.peek()) == ([], 1)


@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("raises", [False, True])
def test_a_handler_that_begins_another_business_transaction_fails_and_sends_nothing(
    business, database, queue, order, pipe, verb, raises
):
    order(1)

    def chain(context):
        begin = "BEGIN" if database.engine == "postgresql" else "BEGIN TRANSACTION"
        with suppress(HandlerBrokeTransaction):
            context.connection.cursor().execute(verb)
        context.connection.cursor().execute(begin)
        if raises:
            raise ValueError("no such order")

    outcome = pipe(then=chain).process_one()

    told = database.engine == "postgresql" and verb == "ROLLBACK"  # SQL Server does not say which of the two it was
    assert (outcome.kind, "HandlerBrokeTransaction" in outcome.error) == (
        Kind.FAILED if told else Kind.MOVED_TO_ERROR,
        True,
    )
    assert (ledger(business), sent(database), queue.peek()) == ([1] if verb == "COMMIT" else [], [], 1 if told else 0)


def test_a_queues_connection_that_is_lost_after_the_business_commit_sends_once(
    business, database, queue, order, pipe, sql
):
    if database.engine != "postgresql":
        pytest.skip("no session can be ended from here")
    order(1)
    made = []
    lose = at_step(
        "stored",
        lambda: sql.run("SELECT pg_terminate_backend(?, 5000)", made[0].database.driver_connection.info.backend_pid),
    )
    made.append(pipe(step=lose))

    with pytest.raises(DatabaseUnavailable):
        made[0].process_one()
    between = (ledger(business), sent(database), left_behind(business))
    kinds = handle_all(pipe())

    assert between == ([1], [], ["m-1"])
    assert kinds == [Kind.HANDLED]
    assert (ledger(business), sent(database), queue.peek(), left_behind(business)) == ([1], [1], 0, [])


def test_a_business_database_without_an_outbox_is_refused_before_a_handler_runs(
    business, database, queue, order, pipe, new_database, target
):
    bare = new_database("sqlserver" if database.engine == "sqlserver" else target.label)
    order(1)

    with pytest.raises(SchemaMissing, match=r"business database 'business'.*rowpost apply"):
        pipe(url=bare).process_one()

    assert queue.peek() == 1


def test_an_outbox_table_that_lost_a_column_is_found_before_a_handler_runs(business, database, queue, order, pipe):
    calls = []
    order(1)
    with altered(business, "ALTER TABLE rowpost.outbox_operations DROP COLUMN operations"):
        with pytest.raises(Exception, match="operations"):
            pipe(then=lambda context: calls.append(1)).process_one()

    assert (calls, queue.peek(), remembered(business)) == ([], 1, [])


@contextmanager
def altered(business, statement):
    """The outbox with a column less, for a while."""
    business.run(statement)
    try:
        yield
    finally:
        text = "text" if business.database.engine == "postgresql" else "nvarchar(max)"
        business.run(f"ALTER TABLE rowpost.outbox_operations ADD operations {text} NOT NULL DEFAULT ''")


def test_many_messages_use_one_business_connection_and_are_settled_along_the_way(
    business, database, queue, order, pipe, sql
):
    for number in range(50):
        order(number)
    connections = set()

    of = (lambda each: each.info.backend_pid) if business.database.engine == "postgresql" else id
    kinds = handle_all(pipe(then=lambda context: connections.add(of(context.connection))))

    assert Counter(kinds) == {Kind.HANDLED: 50}
    assert (ledger(business), sent(database), left_behind(business)) == (list(range(50)), list(range(50)), [])
    assert (len(connections), sql.run("SELECT message_id FROM rowpost.dispatch")) == (1, [])


def test_a_handler_that_stops_the_others_is_handled_once_and_what_it_sent_is_sent(
    business, business_url, open_database, order
):
    database, seen = open_database(), []
    endpoint = endpoint_of("Sales", business_url, then=lambda context: context.stop_handlers())
    endpoint.handles_everything(lambda message, context: seen.append(message))
    order(1)
    order(1)

    pipeline = pipeline_of(database, endpoint)
    kinds = handle_all(pipeline)
    pipeline.close()

    assert (kinds, seen) == ([Kind.HANDLED, Kind.HANDLED], [])
    assert business.value("SELECT COUNT(*) FROM business") == 1
    assert Queue("Billing", open_database()).peek() == 1
