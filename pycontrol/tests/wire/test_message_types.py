"""Names of .NET's types: nested, generic, of an interface."""

from dataclasses import dataclass
from typing import Any

import pytest

from rowpost.dashboard.rendering import ENVIRONMENT
from rowpost.endpoint.endpoint import Endpoint
from rowpost.handling.audit import not_audited
from rowpost.recoverability.outcome import Kind
from rowpost.settings.environment import load_settings
from rowpost.wire.conversation import ConversationStep
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import find_class, first_type, message_type, short_type, split_enclosed_types, type_key
from rowpost.wire.serialization import named_in_body
from tests.support.recorded_rows import recorded, recorded_headers

OF_INT = "Shop.Messages.Wrapped`1[[System.Int32, System.Private.CoreLib, Version=10.0.0.0, Culture=neutral, PublicKeyToken=7cec85d7bea7798e]]"
OF_LINE = "Shop.Messages.Wrapped`1[[Shop.Messages.Line, nsb, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null]]"
ROWS = {
    "send-nested-type": ["Shop.Messages.Outer+Inner"],
    "send-generic-type": [OF_INT, "Shop.Messages.Wrapped`1[[System.Int32]]"],
    "send-generic-type-of-class": [OF_LINE, "Shop.Messages.Wrapped`1[[Shop.Messages.Line]]"],
    "publish-interface": ["Shop.Messages.IOrderEvent"],
}


@dataclass
class Boxed:
    order_id: int
    value: Any = None


@pytest.mark.parametrize(("row", "name"), [(row, name) for row, names in ROWS.items() for name in names])
def test_a_handler_is_found_by_the_full_name_of_a_recorded_type_with_and_without_the_assemblies_of_its_arguments(
    target, database, sql, row, name
):
    seen: list[Boxed] = []
    endpoint = Endpoint("Billing")
    endpoint.handles(name, Boxed)(lambda message, context: seen.append(message))
    sql.empty("Billing")
    sql.insert_minimal("Billing", recorded(row)["headers"], recorded(row)["body"].encode())

    outcome = endpoint.process_one(database)

    assert outcome.kind is Kind.HANDLED, outcome.error
    assert len(seen) == 1


@pytest.mark.parametrize("row", ROWS)
def test_the_full_name_in_a_recorded_header_ends_where_its_assembly_begins(row):
    header = recorded_headers(row)["NServiceBus.EnclosedMessageTypes"]

    assert list(split_enclosed_types(f"{header};Shop.IBase, Shop")) == [ROWS[row][0], "Shop.IBase"]
    assert first_type(header) == ROWS[row][0]


@pytest.mark.parametrize(
    ("name", "key", "short"),
    [
        ("Shop.A`1[[Shop.B`1[[C, x, V=1]], y, V=2]]", "Shop.A`1[[Shop.B`1[[C]]]]", "A`1[[B`1[[C]]]]"),
        ("Shop.A`2[[Shop.B, x],[C[], y]]", "Shop.A`2[[Shop.B],[C[]]]", "A`2[[B],[C[]]]"),
        ("A`1[[System.Int32[,], x]]", "A`1[[System.Int32[,]]]", "A`1[[Int32[,]]]"),
        ("Shop.Outer+Inner", "Shop.Outer+Inner", "Outer+Inner"),
        ("Shop.", "Shop.", "Shop."),
    ],
)
def test_arguments_lose_their_assemblies_and_namespaces(name, key, short):
    assert (type_key(name), short_type(name)) == (key, short)
    assert list(split_enclosed_types(f" {name} , Shop, Version=1.0.0.0")) == [name]


def test_whoever_names_a_generic_type_may_leave_out_the_assemblies_of_its_arguments(tmp_path):
    short, header = (
        ROWS["send-generic-type"][1],
        recorded_headers("send-generic-type")["NServiceBus.EnclosedMessageTypes"],
    )
    cls = message_type(short)(type("Wrapped", (), {}))
    file = tmp_path / "env.yml"
    file.write_text(
        f"engine: embedded\nqueues: {{error: {{}}}}\nmessage_types: {{'{short}': {{description: A box}}}}\n"
    )
    settings = load_settings(file)

    assert find_class(OF_INT) is cls
    assert not_audited("Billing", [short])({"NServiceBus.EnclosedMessageTypes": header})
    assert settings.message_type(OF_INT).description == "A box"
    assert named_in_body(f'{{"$type":"{OF_INT}, Shop"}}'.encode(), JsonSerializer()) == [OF_INT]
    assert ConversationStep("m", None, OF_INT).short_type == "Wrapped`1[[Int32]]"
    assert ENVIRONMENT.from_string("{{ x | first_type | short_type }}").render(x=header) == "Wrapped`1[[Int32]]"
