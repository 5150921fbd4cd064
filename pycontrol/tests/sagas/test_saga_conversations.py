"""Sagas that talk to each other, to handlers and to themselves: requests, replies, events and timeouts, until all is quiet."""

from dataclasses import dataclass, field
from datetime import timedelta
from threading import Thread
from uuid import UUID, uuid4

import pytest

from rowpost.database.connection import connect_url
from rowpost.endpoint.endpoint import Endpoint
from rowpost.outbox.declaration import Outbox
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import ConflictPolicy, Saga, handles, starts, timeout
from rowpost.settings.engine import engine_of
from rowpost.wire.message_types import message_type
from tests.support.sagas import deploy, deploy_to_business

AT_ONCE = timedelta(0)


@message_type("Talk.Begin")
@dataclass(frozen=True)
class Begin:
    key: str
    number: int = 0


@message_type("Talk.Ask")
@dataclass(frozen=True)
class Ask:
    key: str


@message_type("Talk.Answer")
@dataclass(frozen=True)
class Answer:
    key: str = ""


@message_type("Talk.Happened")
@dataclass(frozen=True)
class Happened:
    key: str


@message_type("Talk.SpecialHappened")
@dataclass(frozen=True)
class SpecialHappened(Happened):
    pass


@message_type("Talk.Overdue")
@dataclass(frozen=True)
class Overdue:
    pass


@message_type("Talk.Expired")
@dataclass(frozen=True)
class Expired:
    pass


@dataclass
class KeyState:
    key: str
    notes: list[str] = field(default_factory=list)


class Talk:
    """Endpoints Sales and Billing in this process. `done` collects what their handlers note."""

    def __init__(self, target, sql, database):
        self.target, self.sql, self.database = target, sql, database
        self.done: list[str] = []
        self.outcomes = []
        self.endpoints = {}

    def endpoint(self, name, *sagas, **options):
        options = {"recoverability": Recoverability(immediate_retries=0, delayed_retries=0)} | options
        made = self.endpoints[name] = Endpoint(name, **options)
        for each in sagas:
            made.saga(each)
        deploy(self.target, made)
        for each in made.sagas:
            self.sql.run(f"DELETE FROM {self.sql.table(each.name)}")
        made.subscribe(self.database)
        return made

    def send(self, message, to="Sales", **headers):
        with self.endpoints[to].open(self.database) as bus:
            bus.send(message, to=to, headers=headers)

    def run(self):
        """Handle messages until no endpoint has one; fail if one of them failed."""
        busy = True
        while busy:
            busy = False
            for each in self.endpoints.values():
                outcome = each.process_one(self.database)
                if outcome.kind is not Kind.EMPTY:
                    busy = True
                    self.outcomes.append(outcome)
        failed = [each for each in self.outcomes if each.kind not in (Kind.HANDLED, Kind.DISCARDED, Kind.DELAYED)]
        assert failed == []

    def instances(self, table):
        return len(self.database.call("list_sagas", table, count=10))


@pytest.fixture
def talk(target, sql, database):
    """Two endpoints without messages; their subscriptions end with the test."""
    for name in ("Sales", "Billing", "error", "Sales.Delayed", "Billing.Delayed"):
        sql.empty(name)
    made = Talk(target, sql, database)
    yield made
    for _, endpoint, *_ in database.call("list_subscriptions"):
        database.call("unsubscribe", endpoint=endpoint, topic="Talk.Happened")
    for each in made.endpoints.values():
        each.close()


# ------------------------------------------------------------------ values
@pytest.mark.parametrize("value", [0, UUID(int=0)], ids=["0", "empty UUID"])
def test_the_default_of_a_type_is_a_correlation_value_like_others(talk, value):
    kind = type(value)

    @message_type(f"Talk.Start.{kind.__name__}")
    @dataclass(frozen=True)
    class Start:
        key: kind

    @message_type(f"Talk.Request.{kind.__name__}")
    @dataclass(frozen=True)
    class Request:
        key: kind

    @dataclass
    class State:
        key: kind

    class Default(Saga[State], correlate={Start: "key", Request: "key"}, table=f"Default_{kind.__name__}"):
        @starts(Start)
        def start(self, message, context):
            context.send_local(Request(self.state.key))

        @handles(Request)
        def request(self, message, context):
            talk.done.append(self.state.key)

    talk.endpoint("Sales", Default)
    talk.send(Start(value))

    talk.run()

    assert talk.done == [value]


# ------------------------------------------------------------------ requests and replies
def asking(talk, **more):
    """A saga that asks on Begin, and is complete when it is answered."""

    class Asking(Saga[KeyState], correlate={Begin: "key", **more}, table="Talk_asking"):
        @starts(Begin)
        def begin(self, message, context):
            context.send_local(Ask(message.key))

        @handles(Answer)
        def answered(self, message, context):
            talk.done.append(f"{self.state.key} answered")
            self.complete()

    return Asking


def test_a_reply_of_another_saga_of_the_endpoint_finds_the_saga_that_asked(talk):
    class Answering(Saga[KeyState], correlate={Ask: "key"}, table="Talk_answering"):
        @starts(Ask)
        def ask(self, message, context):
            context.reply(Answer("of no instance"))

    talk.endpoint("Sales", asking(talk, **{}), Answering)
    talk.send(Begin("A"))

    talk.run()

    assert talk.done == ["A answered"]
    assert (talk.instances("Talk_asking"), talk.instances("Talk_answering")) == (0, 1)


def test_a_timeout_of_a_saga_may_answer_the_saga_that_asked(talk):
    class Answering(Saga[KeyState], correlate={Ask: "key"}, table="Talk_answering"):
        @starts(Ask)
        def ask(self, message, context):
            context.request_timeout(AT_ONCE, Overdue())

        @timeout(Overdue)
        def overdue(self, message, context):
            context.reply_to_originator(Answer())

    talk.endpoint("Sales", asking(talk), Answering)
    talk.send(Begin("A"))

    talk.run()

    assert talk.done == ["A answered"]


def test_an_answer_to_the_originator_has_the_headers_that_it_is_given(talk):
    class Replying(Saga[KeyState], correlate={Begin: "key"}, table="Talk_replying"):
        @starts(Begin)
        def begin(self, message, context):
            context.reply_to_originator(Answer(), headers={"Shop.Custom": self.state.key})

    endpoint = talk.endpoint("Sales", Replying)
    endpoint.handles("Talk.Answer", Answer)(lambda message, context: talk.done.append(context.headers["Shop.Custom"]))
    talk.send(Begin("A"))

    talk.run()

    assert talk.done == ["A"]


def test_a_reply_to_an_event_of_a_saga_finds_the_instance_that_published_it(talk):
    class Publishing(Saga[KeyState], correlate={Begin: "key"}, table="Talk_publishing"):
        @starts(Begin)
        def begin(self, message, context):
            context.publish(Happened(message.key))

        @handles(Answer)
        def answered(self, message, context):
            talk.done.append((self.state.key, message.key))

    talk.endpoint("Sales", Publishing)
    billing = Endpoint("Billing")
    billing.handles("Talk.Happened", Happened, subscribe=True)(
        lambda message, context: context.reply(Answer(message.key)) and None
    )
    billing.subscribe(talk.database)
    talk.endpoints["Billing"] = billing
    for key in "AB":
        talk.send(Begin(key))

    talk.run()

    assert sorted(talk.done) == [("A", "A"), ("B", "B")]


# ------------------------------------------------------------------ messages that find nothing
def finding(talk, name, cls, kind, **more):
    """A saga that notes what it handles and what finds no instance."""
    members = {
        "begin": starts(Begin)(lambda self, message, context: None),
        "take": kind(cls)(lambda self, message, context: talk.done.append(f"{name} handled")),
        "not_found": classmethod(lambda cls, message, context: talk.done.append(f"{name} found nothing")),
        "__orig_bases__": (Saga[KeyState],),
        **more,
    }
    correlate = {Begin: "key", Ask: "key"} if cls is Ask else {Begin: "key"}
    return type(Saga)(name, (Saga,), members, correlate=correlate, table=f"Talk_{name}", name=f"Talk.{name}")


def test_each_saga_that_a_message_does_not_find_says_so_and_the_one_that_it_starts_is_started(talk):
    talk.endpoint(
        "Sales",
        *(finding(talk, *each) for each in (("one", Ask, handles), ("two", Ask, handles), ("three", Ask, starts))),
    )
    talk.send(Ask("A"))

    talk.run()

    assert sorted(talk.done) == ["one found nothing", "three handled", "two found nothing"]


def test_a_message_with_a_saga_id_starts_no_instance_if_it_finds_none(talk):
    late = {"late": timeout(Ask)(lambda self, message, context: talk.done.append("timeout"))}
    endpoint = talk.endpoint("Sales", finding(talk, "one", Ask, starts, **late))
    endpoint.handles("Talk.Ask", Ask)(lambda message, context: talk.done.append("handler"))

    talk.send(Ask("A"), **{"NServiceBus.SagaId": str(uuid4()), "NServiceBus.SagaType": "Talk.one, Shop"})
    talk.run()

    assert sorted(talk.done) == ["handler", "one found nothing"]
    assert talk.instances("Talk_one") == 0


def test_what_a_message_finds_nothing_is_replied_with_reaches_a_handler(talk):
    more = {"not_found": classmethod(lambda cls, message, context: context.reply(Answer("closed")) and None)}
    endpoint = talk.endpoint("Sales", finding(talk, "one", Ask, handles, **more))
    endpoint.handles("Talk.Answer", Answer)(lambda message, context: talk.done.append(message.key))
    talk.send(Ask("A"))

    talk.run()

    assert talk.done == ["closed"]


# ------------------------------------------------------------------ timeouts and retries
def test_two_timeouts_of_one_instance_both_find_it(talk):
    class Waiting(Saga[KeyState], correlate={Begin: "key"}, table="Talk_waiting", without_instance="error"):
        @starts(Begin)
        def begin(self, message, context):
            context.request_timeout(AT_ONCE, Overdue())
            context.request_timeout(AT_ONCE, Expired())

        @timeout(Overdue)
        def overdue(self, message, context):
            self._note("overdue")

        @timeout(Expired)
        def expired(self, message, context):
            self._note("expired")

        def _note(self, what):
            self.state.notes.append(what)
            talk.done.append(what)
            if len(self.state.notes) == 2:
                self.complete()

    talk.endpoint("Sales", Waiting)
    talk.send(Begin("A"))

    talk.run()

    assert (sorted(talk.done), talk.instances("Talk_waiting")) == (["expired", "overdue"], 0)
    assert {each.kind for each in talk.outcomes} == {Kind.HANDLED}


def test_a_message_of_a_saga_that_is_retried_later_reaches_the_same_method(talk):
    class Retried(Saga[KeyState], correlate={Begin: "key", Ask: "key"}, table="Talk_retried"):
        @starts(Begin)
        def begin(self, message, context):
            talk.done.append("begin")
            context.send_local(Ask(message.key))

        @handles(Ask)
        def ask(self, message, context):
            talk.done.append("ask")
            if talk.done.count("ask") < 2:
                raise ValueError("not yet")

    later = Recoverability(immediate_retries=0, delayed_retries=1, delay_increase=timedelta(milliseconds=1))
    talk.endpoint("Sales", Retried, recoverability=later)
    talk.send(Begin("A"))

    talk.run()
    while talk.done.count("ask") < 2:
        talk.run()

    assert talk.done == ["begin", "ask", "ask"]
    assert [each.kind for each in talk.outcomes] == [Kind.HANDLED, Kind.DELAYED, Kind.HANDLED]


# ------------------------------------------------------------------ events
def test_a_saga_that_a_base_event_starts_is_started_by_a_derived_event(talk):
    class Started(Saga[KeyState], correlate={Happened: "key"}, table="Talk_started"):
        @starts(Happened, subscribe=True)
        def happened(self, message, context):
            talk.done.append(message.key)
            self.complete()

    talk.endpoint("Billing", Started)
    with talk.endpoint("Sales").open(talk.database) as bus:
        bus.publish(SpecialHappened("A"))

    talk.run()

    assert talk.done == ["A"]


def test_an_event_of_a_saga_starts_another_one_and_both_time_out(talk):
    class First(Saga[KeyState], correlate={Begin: "key"}, table="Talk_first"):
        @starts(Begin)
        def begin(self, message, context):
            context.publish(Happened(message.key))
            context.request_timeout(AT_ONCE, Overdue())

        @timeout(Overdue)
        def overdue(self, message, context):
            talk.done.append("first")
            self.complete()

    class Second(Saga[KeyState], correlate={Happened: "key"}, table="Talk_second"):
        @starts(Happened, subscribe=True)
        def happened(self, message, context):
            context.request_timeout(AT_ONCE, Expired())

        @timeout(Expired)
        def expired(self, message, context):
            talk.done.append("second")
            self.complete()

    talk.endpoint("Billing", Second)
    talk.endpoint("Sales", First)
    talk.send(Begin("A"))

    talk.run()

    assert sorted(talk.done) == ["first", "second"]
    assert (talk.instances("Talk_first"), talk.instances("Talk_second")) == (0, 0)


def test_two_sagas_of_an_endpoint_handle_one_event(talk):
    class Started(Saga[KeyState], correlate={Happened: "key", Answer: "key"}, table="Talk_started"):
        @starts(Happened, subscribe=True)
        def happened(self, message, context):
            context.send_local(Answer(message.key))

        @handles(Answer)
        def answered(self, message, context):
            talk.done.append("started")
            self.complete()

    class Existing(Saga[KeyState], correlate={Begin: "key", Happened: "key"}, table="Talk_existing"):
        @starts(Begin)
        def begin(self, message, context):
            context.send(Ask(message.key), to="Billing")

        @handles(Happened, subscribe=True)
        def happened(self, message, context):
            talk.done.append("existing")
            self.complete()

    publisher = talk.endpoint("Billing")
    publisher.handles("Talk.Ask", Ask)(lambda message, context: context.publish(Happened(message.key)) and None)
    talk.endpoint("Sales", Started, Existing)
    talk.send(Begin("A"))

    talk.run()

    assert sorted(talk.done) == ["existing", "started"]
    assert (talk.instances("Talk_started"), talk.instances("Talk_existing")) == (0, 0)


# ------------------------------------------------------------------ from one saga to another
@pytest.mark.parametrize("from_timeout", [False, True], ids=["from a handler", "from a timeout"])
def test_what_one_saga_sends_starts_another_one(talk, from_timeout):
    class First(Saga[KeyState], correlate={Begin: "key"}, table="Talk_first"):
        @starts(Begin)
        def begin(self, message, context):
            if from_timeout:
                context.request_timeout(AT_ONCE, Overdue())
            else:
                self._go_on(context)

        @timeout(Overdue)
        def overdue(self, message, context):
            self._go_on(context)

        def _go_on(self, context):
            context.send_local(Ask(self.state.key))
            self.complete()

    class Second(Saga[KeyState], correlate={Ask: "key"}, table="Talk_second"):
        @starts(Ask)
        def ask(self, message, context):
            talk.done.append(self.state.key)

    talk.endpoint("Sales", First, Second)
    talk.send(Begin("A"))

    talk.run()

    assert talk.done == ["A"]
    assert (talk.instances("Talk_first"), talk.instances("Talk_second")) == (0, 1)


# ------------------------------------------------------------------ states
@dataclass(frozen=True)
class Person:
    first: str
    last: str


def test_a_frozen_class_in_the_state_is_stored_and_is_a_copy_when_it_is_loaded(talk):
    @dataclass
    class State:
        key: str
        person: Person | None = None
        numbers: list[int] = field(default_factory=list)

    given = [1, 2]

    class Keeping(Saga[State], correlate={Begin: "key"}, table="Talk_keeping"):
        @starts(Begin)
        def begin(self, message, context):
            talk.done.append((self.state.person, self.state.numbers, self.state.numbers is given))
            self.state.person, self.state.numbers = Person("John", "Doe"), given

    talk.endpoint("Sales", Keeping)
    talk.send(Begin("A"))
    talk.send(Begin("A"))

    talk.run()

    assert talk.done == [(None, [], False), (Person("John", "Doe"), [1, 2], False)]


def test_the_value_of_a_completed_instance_starts_a_new_one(talk):
    class Counting(Saga[KeyState], correlate={Begin: "key", Ask: "key"}, table="Talk_counting"):
        @starts(Begin)
        def begin(self, message, context):
            self.state.notes.append(str(message.number))

        @handles(Ask)
        def ask(self, message, context):
            talk.done.append(self.state.notes)
            self.complete()

    talk.endpoint("Sales", Counting)
    for message in (Begin("A", 1), Ask("A"), Begin("A", 2), Ask("A")):
        talk.send(message)

    talk.run()

    assert (talk.done, talk.instances("Talk_counting")) == ([["1"], ["2"]], 0)


# ------------------------------------------------------------------ concurrent messages
@pytest.mark.parametrize("with_outbox", [False, True], ids=["one database", "outbox"])
def test_messages_that_are_handled_at_the_same_time_do_not_overwrite_each_other(talk, business_url, with_outbox):
    class Collecting(Saga[KeyState], correlate={Begin: "key", Ask: "key"}, table="Talk_collecting"):
        @starts(Begin)
        def begin(self, message, context):
            if message.number == 0:
                for number in (1, 2, 3):
                    context.send_local(Begin(message.key, number))
                return
            self.state.notes.append(str(message.number))
            if len(self.state.notes) == 3:
                context.send_local(Ask(message.key))

        @handles(Ask)
        def ask(self, message, context):
            talk.done.append(sorted(self.state.notes))
            self.complete()

    outbox = {"outbox": Outbox("business", url=business_url), "transaction_mode": "receive_only"} if with_outbox else {}
    endpoint = Endpoint("Sales", recoverability=Recoverability(policy=ConflictPolicy()), **outbox)
    endpoint.saga(Collecting)
    (deploy_to_business if with_outbox else deploy)(talk.target, endpoint)
    talk.endpoints["Sales"] = endpoint
    talk.send(Begin("A"))
    pipelines = [Pipeline(talk.target.connect(), "Sales", endpoint, reconnect=talk.target.connect) for _ in range(3)]

    def work(pipeline):
        while not talk.done and all(each.kind is not Kind.MOVED_TO_ERROR for each in talk.outcomes):
            talk.outcomes.append(pipeline.process_one())

    threads = [Thread(target=work, args=(each,), daemon=True) for each in pipelines]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)

    for each in pipelines:
        each.close()
    assert talk.done == [["1", "2", "3"]]
    url = business_url if with_outbox else talk.target.url
    with connect_url(engine_of(url), url) as states:
        assert states.call("list_sagas", "Talk_collecting", count=10) == []
