"""The error queue: messages are listed, retried, edited and discarded, by the module and by the command line."""

import json
import threading
from uuid import UUID, uuid4

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage, MessageNotFound, QueueNotFound
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage, encode_headers
from tests.support.failing import TYPE
from tests.support.pipelines import pipeline_with
from tests.support.program import Program, rowpost

__all__ = ["rowpost"]


def failed(queue="Sales", error="builtins.ValueError", text="no such order", message_type=TYPE, **more):
    """Headers of a failed message."""
    return {
        "NServiceBus.MessageId": str(uuid4()),
        "NServiceBus.EnclosedMessageTypes": f"{message_type}, Shop.Messages, Version=1.0.0.0",
        "NServiceBus.ProcessingEndpoint": "Sales",
        "NServiceBus.FailedQ": queue,
        "NServiceBus.TimeOfFailure": "2026-04-29 21:58:00:406166 Z",
        "NServiceBus.Retries.Timestamp": "2026-04-29 21:57:28:410222 Z",
        "NServiceBus.ExceptionInfo.ExceptionType": error,
        "NServiceBus.ExceptionInfo.Message": text,
        "NServiceBus.ExceptionInfo.StackTrace": "Traceback (most recent call last):\n  in place_order",
        "Shop.Unknown": 'é漢🚀/"\n',
        **more,
    }


@pytest.fixture
def error(database, sql):
    """The queue error, empty, beside empty queues Sales and Billing."""
    for name in ("error", "Sales", "Billing"):
        sql.empty(name)
    return Queue("error", database)


@pytest.fixture
def errors(error, database):
    return ErrorQueue(database)


def rows(errors, wanted=None, **options):
    return [message.row_version for message in errors.list(wanted, **options)]


# ------------------------------------------------------------------ look
def test_a_failed_message_contains_where_when_and_why_it_failed(error, errors):
    error.send(b"body", failed())

    (message,) = errors.list()

    assert (message.failed_queue, message.failed_at) == ("Sales", "2026-04-29 21:58:00:406166 Z")
    assert (message.exception_type, message.exception_message) == ("builtins.ValueError", "no such order")
    assert (message.message_type, message.browsed.body_bytes, message.browsed.body) == (TYPE, 4, b"")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), "abcd"),
        (Filter(failed_queue="Billing"), "bc"),
        (Filter(exception="keyerror"), "c"),
        (Filter(exception="SUCH ORDER"), "abd"),
        (Filter(message_type="refund"), "d"),
        (Filter(failed_queue="Billing", exception="ValueError"), "b"),
        (Filter(failed_queue="Nowhere"), ""),
    ],
)
def test_a_filter_takes_what_matches_all_of_it(error, errors, database, wanted, found):
    from rowpost.wire.address import Address

    error.send(b"a", failed())
    error.send(b"b", failed(queue=database.canonical(Address("Billing"))))
    error.send(b"c", failed(queue="Billing", error="builtins.KeyError", text="x"))
    error.send(b"d", failed(message_type="Shop.Messages.Refund"))
    error.send(b"poison", "{")

    messages = [errors.find(message.row_version).browsed.body.decode() for message in errors.list(wanted)]

    assert "".join(messages).removesuffix("poison" if wanted == Filter() else "\0") == found


def test_pages_and_limits_reach_every_message_once(error, errors):
    error.send_many(OutgoingMessage(b"", failed(text=str(number % 2))) for number in range(2300))

    everything = rows(errors)
    odd = rows(errors, Filter(exception=": 1"), limit=1100)

    assert len(set(everything)) == 2300
    assert len(odd) == 1100
    assert rows(errors, limit=5, after=everything[9]) == everything[10:15]


def test_a_message_is_found_by_row_by_row_id_and_by_message_id(error, errors):
    row_id = error.send(b"body", headers := failed())
    (row,) = rows(errors)

    found = [errors.find(key) for key in (row, str(row), str(row_id), headers["NServiceBus.MessageId"].upper())]

    assert [message.browsed.body for message in found] == [b"body"] * 4
    assert {message.stack_trace.splitlines()[-1] for message in found} == {"  in place_order"}


@pytest.mark.parametrize("key", ["999999999", "7c9e6679-7425-40de-944b-e07fc1f90ae7", "no such thing"])
def test_a_message_that_is_not_there_is_named(errors, key):
    with pytest.raises(MessageNotFound, match=key):
        errors.find(key)


# ------------------------------------------------------------------ bring back
@pytest.mark.promise("retry-from-error-queue")
def test_a_retry_returns_the_row_to_failed_q_with_its_headers_untouched(error, errors, queue, sql):
    raw = encode_headers(failed()).replace("/", "\\/")
    row_id = error.send(b"\x00\xff", raw)

    destination = errors.retry(rows(errors)[0])

    (message,) = queue.browse()
    assert destination == "Sales"
    assert (message.id, message.raw_headers, message.body) == (row_id, raw, b"\x00\xff")
    assert message.expires is None
    assert error.peek() == 0


@pytest.mark.promise("retry-from-error-queue")
def test_a_body_that_is_null_stays_null(error, errors, sql):
    error.send(None, failed())

    errors.retry(rows(errors)[0])

    assert sql.column_values("Sales", "body") == [None]


@pytest.mark.promise("retry-from-error-queue")
def test_a_retry_is_atomic_and_if_the_queue_is_gone_the_message_stays(error, errors, database):
    error.send(b"body", failed(queue="Nowhere"))
    (row,) = rows(errors)

    with pytest.raises(QueueNotFound, match="Nowhere"):
        errors.retry(row)

    assert rows(errors) == [row]
    assert not database.in_transaction


def test_a_retry_joins_the_transaction_of_its_caller(error, errors, queue, database):
    error.send(b"body", failed())

    database.begin()
    errors.retry(rows(errors)[0])
    database.rollback()

    assert (error.peek(), queue.peek()) == (1, 0)


def test_every_spelling_of_failed_q_leads_back(error, errors, database, queue):
    from rowpost.wire.address import Address

    for spelling in ("Sales", database.canonical(Address("Sales"))):
        error.send(b"body", failed(queue=spelling))

    for row in rows(errors):
        errors.retry(row)

    assert queue.peek() == 2


def test_a_message_that_another_session_locked_or_removed_is_not_retried_twice(
    error, errors, open_database, needs_readpast
):
    error.send(b"body", failed())
    (row,) = rows(errors)
    other = open_database()
    other.call("receive_message", "error", begin=True, row_version=row)

    with pytest.raises(MessageNotFound):
        errors.retry(row)
    other.rollback()

    assert errors.retry(row) == "Sales"
    with pytest.raises(MessageNotFound):
        errors.retry(row)


def test_retry_all_retries_what_matches_and_names_what_stays(error, errors, queue, sql):
    error.send_many(OutgoingMessage(b"%d" % n, failed()) for n in range(120))
    error.send_many(OutgoingMessage(b"", failed(queue="Billing")) for n in range(5))
    error.send(b"", failed(queue="Nowhere"))
    error.send(b"", {"no": "FailedQ"})
    error.send(b"", "{")
    seen = []

    sales = errors.retry_all(Filter(failed_queue="Sales"), progress=seen.append)
    rest = errors.retry_all()

    assert (sales.done, sales.gone, sales.refused, seen) == (120, 0, (), [100, 120])
    assert [message.body for message in queue.receive(500)] == [b"%d" % n for n in range(120)]
    assert (rest.done, len(rest.refused)) == (5, 3)
    assert Queue("Billing", error.database).peek() == 5
    reasons = [reason for _, reason in rest.refused]
    assert "Nowhere" in reasons[0]
    assert all("--to" in reason for reason in reasons[1:])


def test_what_fails_again_during_retry_all_is_not_retried_a_second_time(error, errors, database):
    error.send_many(OutgoingMessage(b"", failed(queue="error")) for _ in range(60))

    assert errors.retry_all().done == 60
    assert error.peek() == 60


def test_two_operators_who_retry_all_at_once_retry_each_message_once(error, open_database, needs_readpast):
    error.send_many(OutgoingMessage(b"%d" % n, failed()) for n in range(400))
    databases = [open_database() for _ in range(2)]
    results = []

    def retry(database):
        results.append(ErrorQueue(database).retry_all())

    threads = [threading.Thread(target=retry, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    bodies = sorted(int(message.body) for message in Queue("Sales", error.database).receive(500))
    assert bodies == list(range(400))
    assert sum(result.done for result in results) == 400


@pytest.mark.promise("retry-from-error-queue")
def test_a_message_retried_by_servicecontrol_is_acknowledged_once_it_is_handled(error, queue, database):
    retried = {
        "NServiceBus.MessageId": str(uuid4()),
        "NServiceBus.EnclosedMessageTypes": TYPE,
        "ServiceControl.Retry.UniqueMessageId": "4711",
        "ServiceControl.Retry.AcknowledgementQueue": "Billing",
        "ServiceControl.Retry.StagingId": "kept",
    }
    queue.send(b"42", retried)
    endpoint = Endpoint("Sales", audit_queue="audit")
    endpoint.handles(TYPE)(lambda message, context: None)

    outcome = Pipeline(database, "Sales", endpoint).process_one()

    (told,) = Queue("Billing", database).receive(5)
    assert outcome.kind is Kind.HANDLED
    assert told.body == b""
    assert told.headers["ServiceControl.Retry.UniqueMessageId"] == "4711"
    assert told.headers["NServiceBus.ControlMessage"] == "True"
    assert told.headers["ServiceControl.Retry.Successful"].endswith(" Z")


RETRIED = {"ServiceControl.Retry.UniqueMessageId": "4711", "ServiceControl.Retry.AcknowledgementQueue": "Billing"}


@pytest.mark.promise("retry-from-error-queue")
@pytest.mark.parametrize("more", [{}, {"NServiceBus.ControlMessage": "True"}], ids=["message", "control message"])
def test_a_plain_function_acknowledges_what_servicecontrol_retried(error, queue, database, more):
    queue.send(b"42", {**RETRIED, **more})

    outcome = pipeline_with(database, "Sales", lambda message, connection: None).process_one()

    (told,) = Queue("Billing", database).receive(5)
    assert outcome.kind is (Kind.DISCARDED if more else Kind.HANDLED)
    assert told.headers["ServiceControl.Retry.UniqueMessageId"] == "4711"


@pytest.mark.promise("retry-from-error-queue")
def test_a_control_message_that_servicecontrol_retried_is_acknowledged_and_audited(error, queue, database, sql):
    sql.empty("audit")
    queue.send(b"", {**RETRIED, "NServiceBus.ControlMessage": "True", "NServiceBus.MessageIntent": "Send"})

    outcome = Pipeline(database, "Sales", Endpoint("Sales", audit_queue="audit")).process_one()

    (told,) = Queue("Billing", database).receive(5)
    (copy,) = Queue("audit", database).receive(5)
    assert outcome.kind is Kind.DISCARDED
    assert told.headers["ServiceControl.Retry.UniqueMessageId"] == "4711"
    assert copy.headers["NServiceBus.ControlMessage"] == "True"
    assert copy.headers["NServiceBus.ProcessingEndpoint"] == "Sales"


@pytest.mark.promise("retry-from-error-queue")
def test_a_retried_message_that_fails_again_is_not_acknowledged(error, queue, database):
    queue.send(b"42", RETRIED)

    outcome = Pipeline(database, "Sales", Endpoint("Sales")).process_one()

    (again,) = error.receive(5)
    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert again.headers["ServiceControl.Retry.UniqueMessageId"] == "4711"
    assert Queue("Billing", database).peek() == 0


# ------------------------------------------------------------------ edit, discard
def test_an_edit_is_a_new_message_that_says_whose_edit_it_is(error, errors, queue):
    headers = failed()
    old = error.send(b"bad", headers)

    errors.edit(rows(errors)[0], body=b"good")

    (message,) = queue.receive(5)
    assert message.body == b"good"
    assert message.id != old
    assert message.headers["NServiceBus.MessageId"] != headers["NServiceBus.MessageId"]
    assert UUID(message.headers["ServiceControl.EditOf"])
    assert message.headers["Shop.Unknown"] == headers["Shop.Unknown"]
    gone = {"NServiceBus.FailedQ", "NServiceBus.TimeOfFailure", "NServiceBus.Retries.Timestamp"}
    assert not gone & set(message.headers)
    assert not [name for name in message.headers if ".ExceptionInfo." in name]
    assert error.peek() == 0


def test_an_edit_names_the_failed_message_as_servicecontrol_does(error, errors, queue):
    error.send(b"", failed(**{"NServiceBus.MessageId": "M1", "ServiceControl.Retry.UniqueMessageId": "known"}))
    error.send(b"", failed(**{"NServiceBus.MessageId": "M1"}))

    for row in rows(errors):
        errors.edit(row, body=b"")

    # md5sum of M1Sales: 4d0acfe7 b79e 1ded 5127 3aec11ab1d0e; .NET reads the first three groups backwards
    assert [m.headers["ServiceControl.EditOf"] for m in queue.receive(5)] == [
        "known",
        "e7cf0a4d-9eb7-ed1d-5127-3aec11ab1d0e",
    ]


def test_other_headers_mend_a_message_whose_headers_cannot_be_read(error, errors, queue):
    error.send(b"body", '{"broken')
    (row,) = rows(errors)

    with pytest.raises(InvalidMessage, match="new headers"):
        errors.edit(row, body=b"x", to="Sales")
    errors.edit(row, headers={"NServiceBus.EnclosedMessageTypes": TYPE}, to="Sales")

    (message,) = queue.receive(5)
    assert (message.body, message.headers["NServiceBus.EnclosedMessageTypes"]) == (b"body", TYPE)


def test_an_edit_of_nothing_is_refused(error, errors):
    error.send(b"body", failed())

    with pytest.raises(InvalidMessage, match="retry"):
        errors.edit(rows(errors)[0])


def test_a_discarded_message_is_gone(error, errors, queue):
    error.send(b"body", failed())
    (row,) = rows(errors)

    errors.discard(row)

    assert (error.peek(), queue.peek()) == (0, 0)
    with pytest.raises(MessageNotFound):
        errors.discard(row)


# ------------------------------------------------------------------ the program
@pytest.fixture
def program(rowpost: Program) -> Program:
    for name in ("error", "Sales", "Billing"):
        assert rowpost("queue", "purge", name, "--yes").code == 0
    return rowpost


def fail(program: Program, body=b"body", **headers) -> int:
    """Puts a failed message into the error queue, and returns its row."""
    path = program.folder / "headers.json"
    path.write_text(json.dumps(failed(**headers)), encoding="utf-8")
    assert program("send", "error", "--raw", "--headers", path, stdin=body).code == 0
    return program("errors", "list", "--json", "-n", "1000").lines[-1]["row_version"]


def test_list_shows_where_when_why_and_what_and_filters(program: Program):
    row = fail(program)
    fail(program, queue="Billing", error="builtins.KeyError", text="\x1b[31mred")

    shown = program("errors", "list")
    filtered = program("errors", "list", "--failed-queue", "Billing", "--exception", "keyerror", "--json")

    line = next(line for line in shown.out.splitlines() if line.split() and line.split()[0] == str(row))
    assert all(text in line for text in ("Sales", "2026-04-29 21:58:00", "ValueError: no such order", TYPE))
    assert "\x1b" not in shown.out
    assert [document["failed_queue"] for document in filtered.lines] == ["Billing"]
    assert filtered.lines[0]["failed_at"] == "2026-04-29T21:58:00.406166+00:00"
    assert "No message" in program("errors", "list", "--type", "Nothing").err


def test_list_goes_on_where_it_stopped(program: Program):
    first, second = fail(program), fail(program)

    shown = program("errors", "list", "--limit", "1")
    rest = program("errors", "list", "--json", "--after", first)

    assert f"--after {first}" in shown.err
    assert [document["row_version"] for document in rest.lines] == [second]


def test_show_prints_reason_stack_trace_headers_and_body(program: Program):
    row = fail(program, b'{"OrderId":42}')

    shown = program("errors", "show", row)
    document = program("errors", "show", row, "--json").json

    assert all(text in shown.out for text in ("builtins.ValueError: no such order", "in place_order", '{"OrderId":42}'))
    assert "Shop.Unknown" in shown.out
    assert (document["failed_queue"], document["body"]) == ("Sales", '{"OrderId":42}')


def test_show_explains_a_message_whose_headers_cannot_be_read(program: Program, new_database):
    fail(program)
    poison(program)
    row = program("errors", "list", "--json").lines[-1]["row_version"]

    shown = program("errors", "show", row)
    refused = program("errors", "retry", row)
    retried = program("errors", "retry", row, "--to", "Billing")

    assert (shown.code, refused.code, retried.code) == (0, 2, 0)
    assert all(
        text in shown.out for text in ("cannot be read", "ServiceControl cannot import it", "--to QUEUE", "{broken")
    )
    assert "--to QUEUE" in refused.err


def poison(program: Program) -> None:
    """A row that no sender of ours would write."""
    from rowpost.database.connection import connect_url

    with connect_url(program.engine, program.variables["SHOP_URL"]) as database:
        Queue("error", database).send(b"\xff", "{broken")


def test_retry_retries_messages_and_prints_where(program: Program):
    found = [fail(program), fail(program, queue="Billing")]

    done = program("errors", "retry", *found)

    assert done.code == 0
    assert "to Sales" in done.err
    assert "to Billing" in done.err
    assert program("queue", "peek", "Sales").out.strip() == "1"
    assert program("errors", "retry", found[0]).code == 6


def test_retry_all_asks_and_exits_with_1_if_messages_stay(program: Program):
    for _ in range(3):
        fail(program)
    fail(program, queue="Nowhere")

    asked = program("errors", "retry-all")
    done = program("errors", "retry-all", "--yes", "--json")

    assert (asked.code, done.code) == (2, 1)
    assert "Retry 4 messages" in asked.err
    assert "3 to Sales" in asked.err
    assert (done.json["retried"], done.json["gone"], len(done.json["refused"])) == (3, 0, 1)
    assert program("queue", "peek", "Sales").out.strip() == "3"


def test_discard_asks_first(program: Program):
    row = fail(program)

    asked = program("errors", "discard", row)
    done = program("errors", "discard", row, "--yes")

    assert (asked.code, done.code) == (2, 0)
    assert f"message {row} ({TYPE}, failed in Sales)" in asked.err
    assert program("queue", "peek", "error").out.strip() == "0"


def test_edit_takes_body_and_headers_from_files(program: Program):
    row = fail(program)
    (program.folder / "body.json").write_bytes(b'{"OrderId":43}')
    (program.folder / "new.json").write_text(json.dumps({"Shop.New": "1"}))

    done = program("errors", "edit", row, "--body", "body.json", "--headers", "new.json")
    (message,) = program("receive", "Sales", "--json").lines

    assert done.code == 0
    assert message["body"] == '{"OrderId":43}'
    assert message["headers"]["Shop.New"] == "1"
    assert set(message["headers"]) == {"Shop.New", "NServiceBus.MessageId", "ServiceControl.EditOf"}


def test_edit_without_a_file_or_of_nothing_is_refused(program: Program):
    row = fail(program)

    assert program("errors", "edit", row).code == 2
    assert program("errors", "edit", row, "--body", "no such file").code == 2
    assert program("errors", "edit", "999999", "--body", "headers.json").code == 6


def test_another_error_queue_may_be_named(program: Program):
    done = program("errors", "list", "--queue", "audit")
    missing = program("errors", "list", "--queue", "NoSuchQueue")

    assert (done.code, missing.code) == (0, 6)
