"""An endpoint with an instance: its own queue gets commands and replies, by workers and by callbacks, and nothing is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import needed_queues, with_endpoints, with_instances
from rowpost.errors import NoReply, SettingsError
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.headers import FORWARD_DESTINATION, REPLY_TO_ADDRESS
from rowpost.wire.message_types import message_type
from tests.support.endpoints import (
    AT_ONCE,
    handled_table,  # noqa: F401 -- a fixture
    note,
)
from tests.support.schema import named
from tests.support.workers import Running, eventually

LONG = timedelta(seconds=20)
HERE = "tests.endpoint.test_instances"


@message_type("Shop.Paint")
@dataclass(frozen=True)
class Paint:
    number: int
    wish: str = ""


@message_type("Shop.Painted")
@dataclass(frozen=True)
class Painted:
    number: int


def make_painter(instance: str | None = "XYZ", **options) -> Endpoint:
    """Return an endpoint whose two handlers write what they get into the table `handled`."""
    painter = Endpoint("Painter", instance=instance, recoverability=AT_ONCE, **options)

    @painter.handles("Shop.Paint", Paint)
    def paint(message: Paint, context) -> None:
        if message.wish == "fail":
            raise ValueError("no paint")
        if message.wish == "reply":
            context.reply(Painted(message.number))
        note(context, f"paint {message.number}")

    @painter.handles("Shop.Paint", Paint)
    def count(message: Paint, context) -> None:
        note(context, f"count {message.number}")

    @painter.handles("Shop.Painted", Painted)
    def painted(message: Painted, context) -> None:
        note(context, f"painted {message.number}")

    return painter


painter = make_painter()


@pytest.fixture
def queues(make_queue, sql, handled_table):  # noqa: F811
    yield [make_queue("Painter"), make_queue("Painter.XYZ")]
    sql.drop_queue("Painter.XYZ.replies")
    sql.run("DELETE FROM rowpost.queue_ownership")


@pytest.fixture
def waiting(queues, target):
    """A process of the endpoint that waits for replies, under no supervisor; nothing is left of it after the test."""
    endpoint = make_painter()
    endpoint.configure(target.settings)
    yield endpoint
    endpoint.close()


@pytest.fixture
def handled(sql):
    return lambda: {row[0] for row in sql.run("SELECT id FROM handled")}


@pytest.fixture
def sender(database):
    def send(message, to="Painter", **options):
        with Endpoint("Sender").open(database) as bus:
            bus.send(message, to=to, **options)

    return send


# ------------------------------------------------------------------ by workers
def test_workers_of_an_endpoint_with_an_instance_receive_from_both_of_its_queues(queues, target, sender, handled):
    with Running(with_endpoints(target.settings, [f"{HERE}:painter"])) as supervisor:
        sender(Paint(1))
        sender(Paint(2), instance="XYZ")

        supervisor.until(lambda: len(handled()) == 4, "both messages are handled by both handlers")

    assert handled() == {"paint 1", "count 1", "paint 2", "count 2"}


def test_the_queue_of_an_instance_is_worked_as_the_queue_of_its_endpoint():
    declared = QueueSettings("Painter", worker=WorkerSettings(f"{HERE}:painter", limit=7, peek_delay=9.0))

    settings = with_instances(Settings(queues=(declared,)))

    assert settings.queue("Painter.XYZ").worker == settings.queue("Painter").worker
    assert settings.queue("Painter.XYZ").delayed
    assert settings.endpoint_name("Painter.XYZ") == "Painter"


def test_a_worker_that_the_environment_declares_for_an_instance_is_kept():
    worker = WorkerSettings(f"{HERE}:painter", limit=7)
    own = QueueSettings("Painter.XYZ", worker=replace(worker, limit=1))

    settings = with_instances(Settings(queues=(QueueSettings("Painter", worker=worker), own)))

    assert settings.queue("Painter.XYZ") == own


def test_the_queue_of_an_instance_that_another_endpoint_works_is_refused():
    worker = WorkerSettings(f"{HERE}:painter")
    other = QueueSettings("Painter.XYZ", worker=replace(worker, handler="shop.app:other"))

    with pytest.raises(SettingsError, match=r"'Painter\.XYZ' belongs to the instance 'XYZ'"):
        with_instances(Settings(queues=(QueueSettings("Painter", worker=worker), other)))


def test_the_queue_of_an_instance_is_needed_before_workers_start():
    declared = QueueSettings("Painter", worker=WorkerSettings(f"{HERE}:painter"))

    assert needed_queues(Settings(queues=(declared,))) == ("Painter", "Painter.XYZ", "error")


def test_settings_that_are_read_again_import_no_module(tmp_path, monkeypatch):
    (tmp_path / "ends_the_process.py").write_text("import os\nos._exit(1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    new = QueueSettings("New", worker=WorkerSettings("ends_the_process:endpoint"))
    known = QueueSettings("Painter", worker=WorkerSettings(f"{HERE}:painter"))

    settings = with_instances(Settings(queues=(new, known)), imported=True)

    assert [queue.name for queue in settings.queues] == ["New", "Painter", "Painter.XYZ"]


# ------------------------------------------------------------------ by callbacks
def test_callbacks_handle_what_arrives_in_the_queue_of_the_instance_with_all_handlers(waiting, target, sender, handled):
    waiting.callbacks(target.settings).start()

    sender(Paint(1), instance="XYZ")
    sender(Paint(2), to="Painter.XYZ")
    eventually(lambda: len(handled()) == 4, "both messages are handled by both handlers")

    assert handled() == {"paint 1", "count 1", "paint 2", "count 2"}


def test_a_message_that_fails_there_moves_to_the_error_queue_with_the_queue_and_the_endpoint(
    waiting, target, sender, database, caplog
):
    waiting.callbacks(target.settings).start()

    sender(Paint(1, "fail"), instance="XYZ")
    (failed,) = eventually(lambda: Queue("error", database).browse(5), "the message is in the error queue")

    assert failed.headers["NServiceBus.FailedQ"] == database.canonical(parse_address(named("Painter.XYZ")))
    assert failed.headers["NServiceBus.ProcessingEndpoint"] == "Painter"
    eventually(lambda: "no paint" in caplog.text, "the failure is told")


def test_a_message_is_retried_later_in_the_queue_of_the_instance(queues, target, sender):
    endpoint = Endpoint("Painter", instance="XYZ", recoverability=Recoverability(0, 1, timedelta(seconds=0.1)))
    calls = []

    @endpoint.handles("Shop.Paint", Paint)
    def paint(message, context):
        calls.append(message)
        if len(calls) == 1:
            raise ValueError("once")

    endpoint.callbacks(target.settings).start()
    sender(Paint(1), instance="XYZ")
    eventually(lambda: len(calls) == 2, "the second attempt")

    endpoint.close()


def test_a_handler_of_the_instance_may_take_long_while_replies_arrive(waiting, target, sender, database):
    begun, goes_on = threading.Event(), threading.Event()

    @waiting.handles("Shop.Wait")
    def wait(message, context):
        begun.set()
        goes_on.wait(20)

    callbacks = waiting.callbacks(target.settings)
    callbacks.start()
    sender(b"", instance="XYZ", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Wait"})
    assert begun.wait(20)

    future = callbacks.submit(Paint(1), "Billing")
    (request,) = eventually(lambda: Queue("Billing", database).receive(1), "the request")
    with Endpoint("Billing").open(database) as bus:
        bus.send(Painted(1), to=request.reply_to, headers=reply_to(request))

    assert future.result(20) == Painted(1)
    goes_on.set()


def reply_to(request):
    return {
        "NServiceBus.MessageIntent": "Reply",
        "NServiceBus.CorrelationId": request.headers["NServiceBus.CorrelationId"],
    }


# ------------------------------------------------------------------ replies that somebody waits for
def test_no_worker_of_the_same_instance_takes_a_reply_that_another_process_waits_for(
    waiting, target, database, open_database
):
    worker = make_painter()
    worker.configure(target.settings)
    pipelines = [worker.pipeline(open_database(), name) for name in map(named, ("Painter", "Painter.XYZ"))]
    callbacks = waiting.callbacks(target.settings)
    callbacks.start()

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(callbacks.request, Paint(1, "reply"), "Painter", timeout=LONG)
        (request,) = eventually(lambda: Queue("Painter", database).browse(1), "the request")
        eventually(lambda: worker.process_next(pipelines[0]).kind is Kind.HANDLED, "the request is handled")
        taken = worker.process_next(pipelines[1])

        assert asked.result(20) == Painted(1)
    assert taken.kind is Kind.EMPTY
    assert request.headers[REPLY_TO_ADDRESS] == database.canonical(parse_address(named("Painter.XYZ.replies")))


def test_a_second_process_of_the_same_instance_sends_no_request_until_the_first_has_ended(waiting, target):
    waiting.callbacks(target.settings).start()
    eventually(lambda: waiting.callbacks()._owned.is_set(), "the first process owns the queue")
    second = make_painter()
    callbacks = second.callbacks(target.settings)

    with pytest.raises(NoReply, match=r"was not sent: another process receives from 'Painter\.XYZ\.replies"):
        callbacks.submit(Paint(1), "Billing", own_within=0.2)
    waiting.close()
    future = callbacks.submit(Paint(1), "Billing")

    assert future.cancel()
    second.close()


def test_a_command_among_the_replies_is_handled(waiting, target, sender, handled):
    waiting.callbacks(target.settings).start()

    sender(Paint(1), to="Painter.XYZ.replies")
    eventually(lambda: len(handled()) == 2, "the command is handled by both handlers")

    assert not waiting.callbacks().dropped


def test_a_request_to_the_own_endpoint_gets_its_reply(waiting, target, database):
    """The endpoint handles its request itself: a handler of the same process sends the reply."""
    callbacks = waiting.callbacks(target.settings)
    callbacks.start()

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(callbacks.request, Paint(1, "reply"), "Painter", timeout=LONG)
        eventually(lambda: waiting.process_one(database).kind is Kind.HANDLED, "the request is handled")

        assert asked.result(20) == Painted(1)


# ------------------------------------------------------------------ addresses
def test_replies_arrive_in_the_shared_queue_also_of_what_the_instance_got(queues, database, target, sender):
    endpoint = make_painter()
    endpoint.configure(target.settings)
    sender(Paint(1, "reply"), instance="XYZ", reply_to="Billing")

    endpoint.process_next(endpoint.pipeline(database, named("Painter.XYZ")))
    (reply,) = Queue("Billing", database).receive(1)

    assert reply.reply_to == database.canonical(parse_address(named("Painter")))


def test_a_reply_to_the_own_instance_is_handled_by_its_handlers(waiting, target, database, handled):
    waiting.callbacks(target.settings).start()

    with waiting.open(database) as bus:
        bus.send(Paint(7), to="Billing", reply_to="Painter.XYZ")
    (request,) = Queue("Billing", database).receive(1)
    with Endpoint("Billing").open(database) as bus:
        bus.send(Painted(7), to=request.reply_to, headers=reply_to(request))
    eventually(lambda: handled() == {"painted 7"}, "the handler gets the reply")


def test_a_reply_to_any_instance_goes_to_the_shared_queue(queues, database, target):
    endpoint = make_painter()
    endpoint.configure(target.settings)

    with endpoint.open(database) as bus:
        bus.send(Paint(7), to="Billing")
    (request,) = Queue("Billing", database).receive(1)

    assert request.reply_to == database.canonical(parse_address(named("Painter")))


def test_a_delayed_message_for_the_instance_is_handled_there_and_not_sent_round(queues, database, target, handled):
    endpoint = make_painter()
    endpoint.configure(target.settings)
    own = database.canonical(parse_address(named("Painter.XYZ")))
    headers = {"NServiceBus.EnclosedMessageTypes": "Shop.Paint", FORWARD_DESTINATION: own}
    Queue("Painter.XYZ", database).send(b'{"Number":3,"Wish":""}', headers)

    outcome = endpoint.process_next(endpoint.pipeline(database, named("Painter.XYZ")))

    assert (outcome.kind, handled()) == (Kind.HANDLED, {"paint 3", "count 3"})


def test_an_endpoint_that_is_closed_waits_for_the_handler_of_its_instance_and_the_handler_for_nothing(
    queues, target, sender
):
    endpoint = Endpoint("Painter", instance="XYZ", recoverability=AT_ONCE)
    begun, ended = threading.Event(), []

    @endpoint.handles("Shop.Paint", Paint)
    def paint(message, context):
        begun.set()
        eventually(lambda: callbacks.closed, "the endpoint is being closed")
        ended.append(endpoint._lock.acquire(timeout=10))

    callbacks = endpoint.callbacks(target.settings)
    callbacks.start()
    sender(Paint(1), instance="XYZ")
    assert begun.wait(20)
    endpoint.close()

    assert ended == [True]
