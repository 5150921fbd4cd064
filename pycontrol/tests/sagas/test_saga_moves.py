"""Sagas that change their correlation property, and sagas that are removed."""

from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from rowpost.deploy import sagas
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.sagas import Correlated, correlate, drop_correlation, drop_saga
from rowpost.deploy.verify import verify
from rowpost.errors import DeployError, InvalidCorrelation, InvalidCount, SagaConflict, SagaNotDeployed
from rowpost.recoverability.outcome import Kind
from rowpost.sagas import Saga, starts
from rowpost.settings.environment import SagaSettings
from rowpost.wire.message_types import message_type
from tests.support.sagas import make_desk

__all__ = ["make_desk"]
from tests.support.schema import named


@message_type("Moving.Go")
@dataclass(frozen=True)
class Go:
    account: str
    number: int


@dataclass
class Moving:
    account: str
    number: int | None = None


@dataclass
class Moved:
    number: int
    account: str = ""


class Before(Saga[Moving], correlate={Go: "account"}, table="Moving"):
    @starts(Go)
    def go(self, message, context):
        self.state.number = message.number


class During(Before, Saga[Moving], correlate={Go: "account"}, table="Moving", transitional="number"):
    pass


class After(Saga[Moved], correlate={Go: "number"}, table="Moving"):
    @starts(Go)
    def go(self, message, context):
        self.state.account += "!"


def test_a_second_correlation_is_stored_while_sagas_move_and_then_finds_them(make_desk, sql):
    make_desk(saga=Before).handle(Go("A", 1))
    during = make_desk(saga=During, fresh=False)
    outcomes = [during.handle(Go("A", 7)), during.handle(Go("B", 8)), during.handle(Go("C", 8))]
    after = make_desk(saga=After, fresh=False)
    outcomes.append(after.handle(Go("", 7)))

    assert [each.kind for each in outcomes] == [Kind.HANDLED, Kind.HANDLED, Kind.FAILED, Kind.HANDLED]
    assert "SagaConflict" in outcomes[2].error
    assert [(row[0], row[2]) for row in after.rows] == [
        ("7", {"Number": 7, "Account": "A!"}),
        ("8", {"Number": 8, "Account": "B"}),
    ]


# ------------------------------------------------------------------ instances that no message comes to meanwhile
FIRST = SagaSettings(named("Moved_Sagas"), "OrderId")
BOTH = replace(FIRST, transitional="Number", transitional_type="integer")
SECOND = SagaSettings(named("Moved_Sagas"), "Number", "integer")


class Table:
    """A saga's table at one step of its way, and its instances."""

    def __init__(self, target, sql):
        self.target, self.sql, self.database = target, sql, target.connect()

    def declare(self, saga):
        apply(self.database, plan(replace(self.target.settings, sagas=(saga,))))

    def start(self, value, data):
        self.database.call(
            "insert_saga",
            FIRST.name,
            id=uuid4(),
            correlation_value=value,
            data=data,
            metadata="{}",
            persistence_version="1",
            saga_type_version="1",
        )

    def find(self, value):
        return self.database.call("load_saga", FIRST.name, correlation_value=value, locked=False, lock_timeout_ms=1000)

    @property
    def columns(self):
        return [name.lower() for name in self.sql.columns(FIRST.name) if name.lower().startswith("correlation")]

    def findings(self, saga):
        """What verify says of this table."""
        findings = verify(self.database, plan(replace(self.target.settings, sagas=(saga,))))
        return [line for line in map(str, findings) if FIRST.name in line]


@pytest.fixture
def table(target, sql):
    made = Table(target, sql)
    if any(row[0] == FIRST.name for row in made.database.call("list_saga_types")):
        drop_saga(made.database, FIRST.name)
    made.declare(FIRST)
    yield made
    made.database.close()


def test_from_one_correlation_to_another_without_a_message_for_any_instance(table):
    for number in (1, 2, 3):
        table.start(f"A{number}", f'{{"OrderId":"A{number}","Number":{number}}}')
    table.declare(BOTH)

    done = correlate(table.database, FIRST.name)
    table.declare(SECOND)
    drop_correlation(table.database, FIRST.name, "OrderId")

    assert done == Correlated(3, 0)
    assert len(table.find("2")) == 1
    assert (table.columns, table.findings(SECOND)) == (["correlation_number"], [])
    assert {row[2] for row in table.database.call("list_sagas", FIRST.name, count=10)} == {1}  # no version was made


def test_instances_whose_state_lacks_the_value_are_counted_and_hold_up_the_move(table):
    table.start("A", '{"OrderId":"A","Number":1}')
    table.start("B", '{"OrderId":"B"}')
    table.start("C", '{"OrderId":"C","Number":null}')
    table.declare(BOTH)

    done = correlate(table.database, FIRST.name)

    assert done == Correlated(1, 2)
    with pytest.raises(DeployError, match="Correlation_Number"):
        table.declare(SECOND)
    assert len(table.find("B")) == 1  # nothing was changed


def test_a_correlation_that_was_never_declared_beside_the_first_is_refused_while_there_are_instances(table):
    table.start("A", '{"OrderId":"A","Number":1}')

    with pytest.raises(DeployError, match="rowpost sagas correlate"):
        table.declare(SECOND)


@pytest.mark.parametrize(
    ("states", "error"),
    [
        (('"Number":1', '"Number":1'), SagaConflict),
        (('"Number":"many"',), InvalidCorrelation),
        ((f'"Number":"{"1" * 201}"',), InvalidCorrelation),
    ],
)
def test_states_that_hold_no_second_correlation_are_refused_in_words(table, states, error):
    for number, state in enumerate(states):
        table.start(f"A{number}", f'{{"OrderId":"A{number}",{state}}}')
    table.declare(BOTH)

    with pytest.raises(error, match="Number"):
        correlate(table.database, FIRST.name)


@pytest.mark.parametrize("count", [0, 1001])
def test_a_count_that_cannot_be_is_refused(table, count):
    table.declare(BOTH)

    with pytest.raises(InvalidCount):
        table.database.call("correlate_sagas", FIRST.name, count=count)


def test_correlate_sagas_reads_so_many_at_a_time_and_none_twice(table):
    for number in range(5):
        table.start(f"A{number}", f'{{"OrderId":"A{number}","Number":{number}}}')
    table.declare(BOTH)

    table.start("B", '{"OrderId":"B"}')
    rows, after = [], None
    for _ in range(4):
        rows.append(table.database.call("correlate_sagas", FIRST.name, count=2, after_id=after)[0])
        after = rows[-1].last_id

    assert [row.correlated + row.missing for row in rows] == [2, 2, 2, 0]
    assert (sum(row.correlated for row in rows), sum(row.missing for row in rows), after) == (5, 1, None)


def test_correlating_goes_on_after_many_instances_that_hold_no_value(table, monkeypatch):
    for number in range(6):
        table.start(f"A{number}", f'{{"OrderId":"A{number}"' + (f',"Number":{number}}}' if number % 3 == 0 else "}"))
    table.declare(BOTH)
    monkeypatch.setattr(sagas, "BATCH", 1)

    assert correlate(table.database, FIRST.name) == Correlated(2, 4)


def test_a_state_that_is_no_json_is_named(table, sql):
    if table.database.engine == "postgresql":
        pytest.skip("PostgreSQL: the column has the type jsonb, which stores no other text")
    table.start("A", '{"OrderId":"A","Number":1}')
    table.declare(BOTH)
    ((id,),) = sql.run(f"SELECT Id FROM {FIRST.name}")
    sql.run(f"UPDATE {FIRST.name} SET Data = 'no JSON'")

    with pytest.raises(InvalidCorrelation, match=f"(?i){id}"):
        correlate(table.database, FIRST.name)


def test_a_saga_that_moves_nowhere_has_nothing_to_fill(table):
    with pytest.raises(DeployError, match="transitional"):
        correlate(table.database, FIRST.name)


def test_a_correlation_by_which_instances_are_found_is_not_dropped(table):
    with pytest.raises(DeployError, match="are found by OrderId"):
        drop_correlation(table.database, FIRST.name, "OrderId")
    table.declare(BOTH)
    with pytest.raises(DeployError, match="moves from OrderId to Number"):
        drop_correlation(table.database, FIRST.name, "Number")


# ------------------------------------------------------------------ types that go
@pytest.mark.parametrize("keep", [True, False])
def test_a_type_of_saga_that_is_gone_leaves_its_table_only_where_that_is_wanted(table, keep):
    table.start("A", "{}")

    drop_saga(table.database, FIRST.name, keep_table=keep)

    assert FIRST.name not in [row[0] for row in table.database.call("list_saga_types")]
    assert not [row[0] for row in table.database.call("list_scripts") if row[0].endswith(f":{FIRST.name}")]
    with pytest.raises(SagaNotDeployed):
        drop_saga(table.database, FIRST.name)
    table.declare(FIRST)
    assert len(table.find("A")) == (1 if keep else 0)
