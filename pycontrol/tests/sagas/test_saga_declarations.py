"""Sagas without a database: declarations that cannot work, names, and the policy for conflicts."""

import dataclasses
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import Deadlock, LockTimeout, SagaConflict, SettingsError
from rowpost.recoverability.policy import Decision, Failure, Recoverability
from rowpost.sagas import ConflictPolicy, Saga, handles, starts
from rowpost.settings.environment import SagaSettings
from rowpost.wire.dotnet_values import property_name
from rowpost.wire.json_mirrors import mirror


@dataclass(frozen=True)
class Go:
    order_id: str
    number: int = 0


@dataclass(frozen=True)
class Stop:
    order_number: str


@dataclass
class State:
    order_id: str
    order_number_2: int | None = None
    total: float = 0.0


def declare(state=State, correlate=None, members=None, **options):
    """A saga class with a starting method for Go, or with these members."""
    members = members or {"go": starts(Go)(lambda self, message, context: None)}
    kind = type(Saga)(
        "Policy",
        (Saga,),
        {"__orig_bases__": (Saga[state],), **members},
        correlate={Go: "order_id"} if correlate is None else correlate,
        **options,
    )
    return kind.declaration


def nothing(self, message, context):
    pass


@dataclass
class Demanding:
    order_id: str
    total: int


@dataclass
class ByFloat:
    order_id: float = 0.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"state": int}, "has no state"),
        ({"concurrency": "none"}, "Use pessimistic or optimistic"),
        ({"lock_timeout": timedelta(0)}, "lock_timeout"),
        ({"version": "x" * 24}, "maximum is 23"),
        ({"by": "nothing"}, "State has no such field"),
        ({"transitional": "total"}, "one of str, int, UUID, datetime"),
        ({"state": Demanding}, "Give these fields of Demanding a default: total"),
        ({"state": ByFloat}, "one of str, int, UUID, datetime"),
        ({"correlate": {Go: "order_id", Stop: "order_number"}}, "by='…'"),
        ({"correlate": {Go: "number", Stop: "number"}, "by": "order_id"}, "Stop, but no method handles it"),
        ({"correlate": {Go: "nothing"}, "by": "order_id"}, "Go.nothing, but there is no such field"),
        ({"members": {"go": handles(Go)(nothing)}}, "started by no message"),
        (
            {"members": {"a": starts(Go)(lambda s, m, c: None), "b": handles(Go)(lambda s, m, c: None)}},
            "in two methods",
        ),
        ({"correlate": {}, "by": "order_id"}, "is started by Go"),
    ],
)
def test_a_declaration_that_cannot_work_says_why(arguments, said):
    with pytest.raises(SettingsError) as caught:
        declare(**arguments)

    assert said in str(caught.value)
    assert "Policy" in str(caught.value)


def test_a_generator_is_refused_where_it_is_written():
    async def go(self, message, context):
        yield

    with pytest.raises(SettingsError, match="is a generator: calling it runs nothing"):
        starts(Go)(go)


def test_a_class_that_says_nothing_of_correlation_is_no_saga_yet():
    class Unfinished(Saga[State]):
        pass

    with pytest.raises(SettingsError, match="is not declared as a saga"):
        Endpoint("Sales").saga(Unfinished)
    with pytest.raises(SettingsError, match="Add the class argument correlate"):

        class Wrong(Saga[State], table="x"):
            pass


def test_the_table_is_named_by_endpoint_and_class_and_its_columns_by_the_properties():
    declared = declare(transitional="order_number_2")

    assert declared.settings_for("Shop.Sales") == SagaSettings(
        "Shop_Sales_Policy", "OrderId", "string", "OrderNumber2", "integer"
    )
    assert declare(table="Mine").settings_for("Shop.Sales").name == "Mine"


def test_an_event_that_starts_a_saga_is_subscribed_to_where_it_says_so():
    class Policy(Saga[State], correlate={Go: "order_id"}):
        @starts(Go, subscribe=True)
        def go(self, message, context):
            pass

    endpoint = Endpoint("Sales")
    endpoint.saga(Policy)

    assert endpoint.subscriptions == (f"{Go.__module__}.Go",)


def test_properties_are_spelt_as_bodies_spell_them():
    @dataclass
    class Names:
        order_id: int = 0
        a: int = 0
        x2_y: int = 0
        already: int = 0
        with_numbers_12: int = 0

    fields = [field.name for field in dataclasses.fields(Names)]

    assert tuple(property_name(name) for name in fields) == mirror(Names, "pascal", "read").__struct_encode_fields__


@pytest.mark.parametrize("error", [SagaConflict(), Deadlock(), LockTimeout()])
def test_a_conflict_is_tried_again_at_once_after_a_random_wait_that_grows(error):
    waits, bounds = [], []
    policy = ConflictPolicy(
        retries=20,
        jitter=timedelta(milliseconds=10),
        sleep=waits.append,
        uniform=lambda low, high: bounds.append((low, high)) or high,
    )

    decisions = {policy(Failure(error, attempt, 0, {})) for attempt in (1, 2, 20)}

    assert decisions == {Decision.RETRY}
    assert bounds == [(0.0, 0.01), (0.0, 0.02), (0.0, 0.1)]
    assert waits == [0.01, 0.02, 0.1]


def test_too_many_conflicts_and_all_other_errors_are_treated_as_always():
    def never(seconds):
        raise AssertionError("waited")

    policy = ConflictPolicy(retries=20, otherwise=Recoverability(immediate_retries=1, delayed_retries=1), sleep=never)

    assert policy(Failure(SagaConflict(), 21, 0, {})) == timedelta(seconds=10)
    assert policy(Failure(SagaConflict(), 21, 1, {})) is Decision.ERROR
    assert policy(Failure(ValueError(), 1, 0, {})) is Decision.RETRY
