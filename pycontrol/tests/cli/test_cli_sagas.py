"""rowpost plan, apply and sagas: from an endpoint's declaration to the rows of its instances."""

import re

import pytest

from tests.support.program import Program, rowpost

__all__ = ["rowpost"]

APP = """
from dataclasses import dataclass
from rowpost.endpoint.endpoint import Endpoint
from rowpost.wire.message_types import message_type
from rowpost.sagas import Saga, starts

@message_type("Shop.Place")
@dataclass(frozen=True)
class Place:
    order_id: str
    total: int = 0

@dataclass
class OrderState:
    order_id: str
    total: int = 0

sales = Endpoint("Sales", audit_queue="audit")

@sales.saga
class OrderPolicy(Saga[OrderState], correlate={Place: "order_id"}):
    @starts(Place)
    def placed(self, message, context):
        self.state.total += message.total
"""
WORKERS = 'queues: {Sales: {worker: {handler: "shop_app:sales", limit: 1}}, error: {}, audit: {}}\n'


@pytest.fixture(scope="module")
def shop(rowpost: Program) -> Program:
    """The program, with an endpoint whose saga is not deployed yet."""
    (rowpost.folder / "shop_app.py").write_text(APP)
    text = rowpost.environment.read_text().split("queues:")[0] + WORKERS
    rowpost.environment.write_text(text)
    return rowpost


def test_from_the_endpoints_declaration_to_the_history_of_an_instance(shop: Program):
    refused = shop("run", "--until-idle")
    planned = shop("plan", "--json")
    applied = shop("apply")
    again = shop("plan", "--json", "--exit-code")
    types = shop("sagas", "list", "--json")
    for total in (5, 7):
        shop("send", "Sales", "--type", "Shop.Place", stdin=f'{{"OrderId":"A 1","Total":{total}}}')
    ran = shop("run", "--until-idle")
    shown = shop("sagas", "show", "Sales_OrderPolicy", "A 1", "--json")
    history = shop("sagas", "history", "Sales_OrderPolicy", "A 1", "--json")

    assert (refused.code, "rowpost apply" in refused.err) == (6, True)
    assert "saga Sales_OrderPolicy" in [change["name"] for change in planned.json["changes"]]
    assert (applied.code, again.code, ran.code) == (0, 0, 0)
    assert types.json == [
        {
            "saga": "Sales_OrderPolicy",
            "correlation": "OrderId",
            "correlation_type": "string",
            "second": None,
            "second_type": None,
        }
    ]
    assert (shown.json["state"], shown.json["version"]) == ({"OrderId": "A 1", "Total": 12}, 2)
    assert shop("sagas", "show", "Sales_OrderPolicy", shown.json["id"], "--json").json == shown.json
    assert [each["message"] for each in history.json] == ["Shop.Place", "Shop.Place"]
    assert shop("sagas", "list", "Sales_OrderPolicy", "--json").json == [shown.json]
    assert "A 1" in shop("sagas", "list", "Sales_OrderPolicy").out


def test_no_command_lets_what_is_stored_control_the_terminal(shop: Program):
    odd = "B\x9b31m\u202e\x7f\x85"
    shop("apply")
    shop("send", "Sales", "--type", "Shop.Place", "--header", f"Odd={odd}", stdin=f'{{"OrderId":"{odd}","Total":5}}')
    shop("send", "Sales", "--type", f"Shop.{odd}", stdin=f'{{"OrderId":"{odd}"}}')
    shop("run", "--until-idle")
    instance = next(
        each["id"] for each in shop("sagas", "list", "Sales_OrderPolicy", "--json").json if each["instance"] == odd
    )
    row = shop("errors", "list", "--json").lines[0]["row_version"]
    commands = [
        ("sagas", "list", "Sales_OrderPolicy"), ("sagas", "show", "Sales_OrderPolicy", instance),
        ("sagas", "history", "Sales_OrderPolicy", instance), ("errors", "list"), ("errors", "show", row), ("queue", "browse", "audit"),
        ("queue", "browse", "error"), ("queue", "list"), ("receive", "audit"), ("receive", "no" + odd),
    ]  # fmt: skip

    for command in commands:
        for options in ((), ("--json",)):
            ended = shop(*command, *options)
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", ended.out + ended.err), (
                command
            )
            assert "Usage" not in ended.err, command


def test_a_type_of_saga_moves_to_another_correlation_and_goes(shop: Program):
    text = shop.environment.read_text()

    def declare(saga: str) -> None:
        shop.environment.write_text(f"{text}sagas: {{Moving: {saga}}}\n")

    declare("{correlation: OrderId}")
    shop("apply")
    declare("{correlation: OrderId, transitional: Number, transitional_type: integer}")
    moved = shop("apply")
    nothing = shop("sagas", "correlate", "Sales_OrderPolicy")
    filled = shop("sagas", "correlate", "Moving", "--json")
    refused = shop("sagas", "drop-correlation", "Moving", "OrderId", "--yes")
    declare("{correlation: Number, type: integer}")
    shop("apply")
    dropped = shop("sagas", "drop-correlation", "Moving", "OrderId", "--yes")
    verified = shop("verify")
    shop.environment.write_text(text)
    asked = shop("sagas", "drop", "Moving")
    gone = shop("sagas", "drop", "Moving", "--yes", "--json")
    types = shop("sagas", "list", "--json")
    operations = shop("operations", "list", "--json").lines

    assert [(operation["name"], operation["details"]) for operation in operations[:2]] == [
        ("drop-saga", {"saga": "Moving"}),
        ("drop-correlation", {"saga": "Moving", "correlation": "OrderId"}),
    ]
    assert (moved.code, nothing.code, filled.code, filled.json) == (0, 7, 0, {"correlated": 0, "missing": 0})
    assert "no second correlation" in nothing.err.replace("\n", " ")
    assert (refused.code, "are found by OrderId" in refused.err.replace("\n", " ")) == (7, True)
    assert (dropped.code, verified.code) == (0, 0)
    assert asked.code != 0
    assert gone.json == {"saga": "Moving", "dropped": True}
    assert "Moving" not in [each["saga"] for each in types.json]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("sagas", "show", "Nowhere", "A"), 6, "There is no saga with the table 'Nowhere'"),
        (("sagas", "show", "Sales_OrderPolicy", "nobody"), 6, "completed, or it was never started"),
        (("sagas", "list", "Sales_OrderPolicy", "--count", "0"), 2, "count"),
        (("sagas", "history", "Sales_OrderPolicy", "14cfe524-7377-1367-6615-9061c2a79edd"), 0, "No message in audit"),
    ],
)
def test_what_is_not_there_is_said_in_words(shop: Program, arguments, code, said):
    shop("apply")

    ended = shop(*arguments)

    assert (ended.code, said in ended.err) == (code, True), ended


def test_an_environments_file_declares_sagas_where_the_endpoint_cannot_be_imported(shop: Program, tmp_path):
    text = shop.environment.read_text().replace("shop_app", "nowhere_app")
    path = tmp_path / "declared.yml"
    path.write_text(
        text + "sagas: {Declared: {correlation: Number, type: integer, transitional: Key, transitional_type: uuid}}\n"
    )
    program = shop.with_environment(path)

    planned = program("plan", "--sql")

    assert planned.code == 0
    assert "No module" in planned.err or "no module" in planned.err
    assert "Correlation_Number" in planned.out
    assert "Correlation_Key" in planned.out
    assert "register_saga" in planned.out


@pytest.mark.parametrize(
    ("sagas", "said"),
    [
        ("{X: {}}", "sagas.X.correlation"),
        ("{X: {correlation: A, type: text}}", "sagas.X.type"),
        ("{X: {correlation: 'a b'}}", "not a property's name"),
        ("{X: {correlation: A, colour: red}}", "unknown key"),
    ],
)
def test_a_wrong_declaration_is_named_by_its_key(shop: Program, tmp_path, sagas, said):
    path = tmp_path / "wrong.yml"
    path.write_text(shop.environment.read_text() + f"sagas: {sagas}\n")

    ended = shop.with_environment(path)("plan", "--sql")

    assert (ended.code, said in ended.err) == (3, True), ended.err
