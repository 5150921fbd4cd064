"""What a message reaches in a saga: methods of several types, timeouts, renamed sagas, headers, and base classes."""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Header, Saga, handles, starts, timeout
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.sagas import deploy, make_desk

__all__ = ["make_desk"]

AT_ONCE = timedelta(0)


@message_type("Rooms.Begin")
@dataclass(frozen=True)
class Begin:
    room: str = ""


@message_type("Rooms.Change")
@dataclass(frozen=True)
class Change:
    room: str


@message_type("Rooms.Repaint")
@dataclass(frozen=True)
class Repaint(Change):
    colour: str = "white"


@message_type("Rooms.Remind")
@dataclass(frozen=True)
class Remind:
    pass


@message_type("Rooms.Alarm")
@dataclass(frozen=True)
class Alarm(Remind):
    pass


@dataclass
class RoomState:
    room: str
    seen: list[str] = field(default_factory=list)


@pytest.fixture(autouse=True)
def no_timeouts(sql):
    """The timeouts of an earlier test are gone."""
    sql.empty("Sales.Delayed")


def note(text):
    """A method that notes a text in the state."""

    def method(self, message, context):
        self.state.seen.append(text)

    return method


def make_saga(members, correlate, table="Rooms", state=RoomState, **options):
    namespace = {"__orig_bases__": (Saga[state],), "__module__": __name__, "__qualname__": "Rooms", **members}
    return type(Saga)("Rooms", (Saga,), namespace, correlate=correlate, table=table, **options)


def begun(**members):
    """A saga that Begin starts, with these methods."""
    correlate = {Begin: "room"}
    return make_saga({"begin": starts(Begin)(note("begin")), **members}, correlate)


def seen(desk):
    return [(row[0], row[2]["Seen"]) for row in desk.rows]


def fire(desk):
    """Move due timeouts to the queue, and handle one."""
    move_due(desk.database, "Sales")
    return desk.work()


# ------------------------------------------------------------------ several methods for one message
@pytest.fixture(params=["pessimistic", "optimistic"])
def of_two_types(request):
    """A saga that handles Repaint and its base Change."""
    members = {
        "begin": starts(Begin)(note("begin")),
        "changed": handles(Change)(note("changed")),
        "repainted": handles(Repaint)(note("repainted")),
    }
    return make_saga(members, {Begin: "room", Change: "room"}, concurrency=request.param)


@pytest.mark.promise("saga-one-instance-per-message")
def test_the_methods_of_a_message_and_of_its_base_share_one_instance_that_is_stored_once(make_desk, of_two_types):
    desk = make_desk(saga=of_two_types)
    desk.handle(Begin("A"))

    outcome = desk.handle(Repaint("A"))

    assert outcome.kind is Kind.HANDLED, outcome
    assert [(row[1], row[2]["Seen"]) for row in desk.rows] == [(2, ["begin", "changed", "repainted"])]


def test_methods_that_share_a_new_instance_insert_it_once(make_desk):
    members = {"changed": starts(Change)(note("changed")), "repainted": handles(Repaint)(note("repainted"))}
    desk = make_desk(saga=make_saga(members, {Change: "room"}))

    outcome = desk.handle(Repaint("A"))

    assert outcome.kind is Kind.HANDLED, outcome
    assert [(row[1], row[2]["Seen"]) for row in desk.rows] == [(1, ["changed", "repainted"])]


def test_methods_share_an_instance_in_a_batch_too(make_desk, of_two_types):
    desk = make_desk(saga=of_two_types)
    desk.handle(Begin("A"))
    for _ in range(3):
        desk.send(Repaint("A"))
    pipeline = Pipeline(desk.target.connect(), "Sales", desk.endpoint, reconnect=desk.target.connect)

    outcomes = Batches(pipeline, BatchSize(10, None, now=10)).process()

    pipeline.close()
    assert {each.kind for each in outcomes} == {Kind.HANDLED}
    assert [(row[1], row[2]["Seen"]) for row in desk.rows] == [(4, ["begin", *["changed", "repainted"] * 3])]


def test_a_method_that_completes_the_instance_is_the_last_one(make_desk):
    members = {
        "begin": starts(Begin)(note("begin")),
        "repainted": handles(Repaint)(lambda self, message, context: self.complete()),
        "changed": handles(Change)(lambda self, message, context: context.send(Remind(), to="audit")),
    }
    desk = make_desk(saga=make_saga(members, {Begin: "room", Change: "room"}))
    desk.handle(Begin("A"))

    outcome = desk.handle(Repaint("A"))

    assert (outcome.kind, desk.rows, desk.waiting("audit")) == (Kind.HANDLED, [], 0)


def test_what_a_second_method_fails_with_undoes_the_first(make_desk):
    def fail(self, message, context):
        raise ValueError("no")

    members = {
        "begin": starts(Begin)(note("begin")),
        "changed": handles(Change)(fail),
        "repainted": handles(Repaint)(note("repainted")),
    }
    desk = make_desk(saga=make_saga(members, {Begin: "room", Change: "room"}))
    desk.handle(Begin("A"))

    outcome = desk.handle(Repaint("A"))

    assert (outcome.kind, seen(desk)) == (Kind.FAILED, [("A", ["begin"])])


# ------------------------------------------------------------------ base classes
def test_a_mapping_of_a_base_class_serves_its_subclasses(make_desk):
    desk = make_desk(saga=make_saga({"repainted": starts(Repaint)(note("repainted"))}, {Change: "room"}))

    outcomes = [desk.handle(Repaint("A")), desk.handle(Repaint("A"))]

    assert {each.kind for each in outcomes} == {Kind.HANDLED}
    assert seen(desk) == [("A", ["repainted", "repainted"])]


def test_the_nearest_mapping_counts(make_desk):
    members = {"repainted": starts(Repaint)(note("repainted"))}
    desk = make_desk(saga=make_saga(members, {Change: "room", Repaint: "colour"}, by="room"))

    desk.handle(Repaint("A", "red"))

    assert seen(desk) == [("red", ["repainted"])]


# ------------------------------------------------------------------ a class that is handled and timed out
@pytest.fixture
def looping():
    """A saga that requests a timeout with the class that starts it."""

    def begin(self, message, context):
        self.state.seen.append("begin")
        context.request_timeout(AT_ONCE, message)

    return make_saga({"begin": starts(Begin)(begin), "over": timeout(Begin)(note("over"))}, {Begin: "room"})


def test_a_timeout_of_the_class_that_starts_the_saga_comes_to_the_timeout_method_alone(make_desk, looping):
    desk = make_desk(saga=looping)
    desk.handle(Begin("A"))

    outcome = fire(desk)

    assert (outcome.kind, seen(desk)) == (Kind.HANDLED, [("A", ["begin", "over"])])
    assert move_due(desk.database, "Sales").moved == 0


def test_a_message_that_is_no_timeout_never_comes_to_a_timeout_method(make_desk, looping):
    desk = make_desk(saga=begun(over=timeout(Remind)(note("over"))))
    desk.handle(Begin("A"))

    outcome = desk.handle(Remind(), **{"NServiceBus.SagaId": str(instance_of(desk))})

    assert (outcome.kind, seen(desk)) == (Kind.DISCARDED, [("A", ["begin"])])
    assert "takes only timeouts" in outcome.discard.reason


def test_a_timeout_of_a_derived_class_comes_to_the_timeout_method_of_its_base(make_desk):
    def begin(self, message, context):
        context.request_timeout(AT_ONCE, Alarm())

    members = {"begin": starts(Begin)(begin), "over": timeout(Remind)(note("over"))}
    desk = make_desk(saga=make_saga(members, {Begin: "room"}))
    desk.handle(Begin("A"))

    fire(desk)

    assert seen(desk) == [("A", ["over"])]


def test_a_handles_method_takes_timeouts_where_no_timeout_method_does(make_desk):
    def begin(self, message, context):
        context.request_timeout(AT_ONCE, Remind())

    members = {"begin": starts(Begin)(begin), "over": handles(Remind)(note("over"))}
    desk = make_desk(saga=make_saga(members, {Begin: "room"}))
    desk.handle(Begin("A"))

    assert (fire(desk).kind, seen(desk)) == (Kind.HANDLED, [("A", ["over"])])


@pytest.mark.parametrize("message", [Begin("A"), Remind(), b"{}"], ids=["starts only", "not handled", "bytes"])
def test_a_timeout_that_the_saga_does_not_handle_is_refused_when_it_is_requested(make_desk, message):
    members = {"begin": starts(Begin)(lambda self, _, context: context.request_timeout(AT_ONCE, message))}
    desk = make_desk(saga=make_saga(members, {Begin: "room"}, name="Shop.Rooms"))

    outcome = desk.handle(Begin("A"))

    assert outcome.kind is Kind.FAILED
    assert "The saga Shop.Rooms cannot request a timeout with a" in outcome.error
    assert f"@timeout({type(message).__name__})" in outcome.error
    assert desk.rows == []


def instance_of(desk) -> UUID:
    ((found, *_),) = desk.database.call("list_sagas", desk.table, count=10)
    return found


# ------------------------------------------------------------------ the id
def test_the_id_of_an_instance_cannot_be_set(make_desk):
    def begin(self, message, context):
        self.id = uuid4()

    desk = make_desk(
        saga=make_saga({"begin": starts(Begin)(begin)}, {Begin: "room"}),
        recoverability=Recoverability(immediate_retries=0, delayed_retries=0),
    )

    outcome = desk.handle(Begin("A"))

    assert (outcome.kind, desk.rows) == (Kind.MOVED_TO_ERROR, [])
    assert "The id of an instance of Rooms cannot be set" in outcome.error


# ------------------------------------------------------------------ the name
def requesting(qualname, module=__name__, table="Rooms", **options):
    """A saga that Begin starts and that Remind times out, under a name of its class."""

    def begin(self, message, context):
        self.state.seen.append("begin")
        context.request_timeout(AT_ONCE, Remind())
        context.send(Change(message.room), to="Billing")

    members = {
        "__module__": module,
        "__qualname__": qualname,
        "begin": starts(Begin)(begin),
        "over": timeout(Remind)(note("over")),
        "answered": handles(Change)(note("answered")),
    }
    return make_saga(members, {Begin: "room"}, table, **options)


def redeploy(desk, *sagas):
    """The endpoint of the next release, which hosts other sagas, on the same tables."""
    for pipeline in desk.pipelines.values():
        pipeline.close()
    desk.pipelines.clear()
    desk.endpoint = Endpoint("Sales", recoverability=Recoverability(immediate_retries=0, delayed_retries=0))
    for each in sagas:
        desk.endpoint.saga(each)


RENAMED = pytest.mark.parametrize(
    "after",
    [("Suites", __name__, {}), ("Rooms", "app.moved", {}), ("Suites", "app.moved", {"name": f"{__name__}.Rooms"})],
    ids=["renamed class", "moved module", "declared name"],
)


@RENAMED
@pytest.mark.promise("saga-survives-rename")
def test_a_pending_timeout_finds_its_instance_after_the_saga_was_renamed(make_desk, after):
    qualname, module, options = after
    desk = make_desk(saga=requesting("Rooms"))
    desk.handle(Begin("A"))
    redeploy(desk, requesting(qualname, module, **options))

    outcome = fire(desk)

    assert (outcome.kind, seen(desk)) == (Kind.HANDLED, [("A", ["begin", "over"])])


@RENAMED
def test_a_reply_finds_its_instance_after_the_saga_was_renamed(make_desk, after):
    qualname, module, options = after
    desk = make_desk(saga=requesting("Rooms"))
    desk.handle(Begin("A"))
    billing = Endpoint("Billing")
    billing.handles("Rooms.Change", Change)(lambda message, context: context.reply(message) and None)
    billing.process_one(desk.database)
    redeploy(desk, requesting(qualname, module, **options))

    outcome = desk.work()

    assert (outcome.kind, seen(desk)) == (Kind.HANDLED, [("A", ["begin", "answered"])])


def test_a_timeout_of_a_renamed_saga_comes_to_the_saga_that_has_its_instance(make_desk):
    desk = make_desk(saga=requesting("Rooms"))
    desk.handle(Begin("A"))
    other = requesting("Other", table="Rooms_other")
    redeploy(desk, other, requesting("Suites"))
    deploy_tables(desk)

    outcome = fire(desk)

    assert (outcome.kind, seen(desk)) == (Kind.HANDLED, [("A", ["begin", "over"])])
    assert desk.database.call("list_sagas", "Rooms_other", count=10) == []


def test_a_timeout_of_a_renamed_saga_whose_instance_nobody_has_is_discarded_with_a_warning(make_desk):
    desk = make_desk(saga=requesting("Rooms"))
    desk.handle(Begin("A"))
    redeploy(desk, requesting("Suites", table="Rooms_other"))
    deploy_tables(desk)

    outcome = fire(desk)

    assert outcome.kind is Kind.DISCARDED
    assert (f"{__name__}.Rooms" in outcome.discard.reason, outcome.discard.expected) == (True, False)


def deploy_tables(desk):
    deploy(desk.target, desk.endpoint)
    desk.sql.run(f"DELETE FROM {desk.sql.table('Rooms_other')}")


def test_the_name_of_a_saga_is_in_its_headers_and_its_table(make_desk):
    made = requesting("Anything", table=None, name="Shop.Orders+Policy")
    desk = make_desk(saga=made)

    desk.handle(Begin("A"))

    (sent,) = Queue("Billing", desk.database).browse(10)
    assert sent.headers["NServiceBus.OriginatingSagaType"] == "Shop.Orders+Policy"
    assert desk.table == "Sales_Policy"


@pytest.mark.parametrize("name", ["", "Shop.", "Shop, Assembly", "a b", "a;b", "1.a"])
def test_a_name_that_headers_cannot_hold_is_refused(name):
    with pytest.raises(SettingsError, match="Write it as a type's full name"):
        requesting("Rooms", name=name)


def test_two_sagas_of_an_endpoint_with_one_name_are_refused():
    endpoint = Endpoint("Sales")
    endpoint.saga(requesting("One", name="Shop.Rooms"))

    with pytest.raises(SettingsError, match=r"Two sagas of Sales are named Shop\.Rooms"):
        endpoint.saga(requesting("Two", table="Others", name="Shop.Rooms"))


# ------------------------------------------------------------------ a header as correlation value
def by_header(kind, table):
    @dataclass
    class KeyState:
        key: kind
        seen: list[str] = field(default_factory=list)

    correlate = {Begin: Header("Shop.Key"), Change: Header("Shop.Key")}
    members = {"begin": starts(Begin)(note("begin")), "changed": handles(Change)(note("changed"))}
    return make_saga(members, correlate, table, KeyState, by="key")


@pytest.mark.parametrize(
    ("kind", "text"),
    [(str, "A 1"), (int, "5"), (UUID, "14cfe524-7377-1367-6615-9061c2a79edd")],
    ids=["str", "int", "UUID"],
)
def test_a_header_that_is_converted_to_the_states_type_finds_the_instance(make_desk, kind, text):
    desk = make_desk(saga=by_header(kind, f"Keyed_{kind.__name__.lower()}"))

    desk.handle(Begin(), **{"Shop.Key": text})
    outcome = desk.handle(Change("ignored"), **{"Shop.Key": text})

    assert outcome.kind is Kind.HANDLED, outcome
    assert [row[2]["Seen"] for row in desk.rows] == [["begin", "changed"]]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "is missing"),
        ({"Shop.Key": ""}, "is empty"),
        ({"Shop.Key": "FIVE"}, "is 'FIVE', which cannot be converted to int"),
    ],
    ids=["missing", "empty", "not a number"],
)
def test_a_header_that_identifies_no_instance_moves_the_message_to_the_error_queue(make_desk, headers, said):
    desk = make_desk(saga=by_header(int, "Keyed_int"))

    outcome = desk.handle(Begin(), **headers)

    assert (outcome.kind, desk.rows) == (Kind.MOVED_TO_ERROR, [])
    assert f"The header Shop.Key of the Begin {said}" in outcome.error


def test_headers_alone_do_not_say_which_field_of_the_state_has_the_value():
    with pytest.raises(SettingsError, match="by='…'"):
        make_saga({"begin": starts(Begin)(note("begin"))}, {Begin: Header("Shop.Key")})
