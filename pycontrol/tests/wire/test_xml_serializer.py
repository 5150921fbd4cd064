"""XML beside .NET: what its serializer writes is read, and written again byte for byte."""

import json
import re
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Any, Literal, NewType

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage, MessageNotDeserialized
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import message_type, type_name
from rowpost.wire.xml_serializer import XmlSerializer
from tests.support.recorded_rows import recorded
from tests.support.recorded_values import RECORDED, Colour, Line, Values, generated_values

XML = XmlSerializer()
#: without a dictionary, DateOnly and TimeOnly, as the recording's README says; .NET's list of lines was null
WITHOUT = {"day": None, "clock": None, "map": None, "text": "Ž€🙂<&>'\"", "lines": None}


class Word(Enum):
    SHORT = "s"


@message_type("Shop.Messages.BillOrder")
@dataclass
class BillOrder:
    order_id: int


def body(content: str, name: str = "BillOrder") -> bytes:
    start = recorded("send-xml")["body"].partition("<OrderId>")[0].replace("BillOrder", name)
    return f"{start}{content}</{name}>".encode()


# ------------------------------------------------------------------------------------------------ the recorded bytes
@pytest.mark.parametrize(("name", "cls", "message"), [
    ("send-xml", BillOrder, BillOrder(42)),
    ("send-xml-values", Values, replace(RECORDED, **WITHOUT)),
])  # fmt: skip
def test_a_recorded_body_is_read_and_written_again_byte_for_byte(name, cls, message):
    theirs = recorded(name)["body"]

    read = XML.decode(theirs.encode(), cls)

    assert replace(read, lines=None) == message if cls is Values else read == message
    assert XML.encode(message).decode() == theirs


@pytest.mark.parametrize("name", ["send-xml", "send-xml-values", "send", "send-values"])
def test_an_endpoint_reads_recorded_rows_of_both_serializers_and_answers_with_its_first(target, database, sql, make_queue, name):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    row, seen = recorded(name), []
    asked = make_queue(json.loads(row["headers"])["NServiceBus.OriginatingEndpoint"])
    endpoint = Endpoint("Billing", serializers=[XML, JsonSerializer()])
    for cls in (BillOrder, Values):

        @endpoint.handles(type_name(cls), cls)
        def handle(message, context):
            seen.append(message)
            context.reply(BillOrder(message.order_id + 1))

    sql.empty("Billing")
    sql.insert_minimal("Billing", row["headers"], row["body"].encode())

    outcome = endpoint.process_one(database)

    assert outcome.kind is Kind.HANDLED, outcome.error
    (reply,) = asked.browse(5)
    assert reply.headers["NServiceBus.ContentType"] == "text/xml"
    assert XML.decode(reply.body, BillOrder) == BillOrder(seen[0].order_id + 1)


def test_a_message_without_headers_names_its_type_in_its_root(target, database, sql):
    seen = []
    endpoint = Endpoint("Billing", serializers=[XML])
    endpoint.handles(type_name(BillOrder), BillOrder)(lambda message, context: seen.append(message))
    sql.empty("Billing")
    sql.insert_minimal("Billing", "", recorded("send-xml")["body"].encode())

    assert endpoint.process_one(database).kind is Kind.HANDLED
    assert seen == [BillOrder(42)]


def test_an_endpoint_without_the_serializer_keeps_the_message_and_says_which_it_has(target, database, sql):
    row = recorded("send-xml")
    endpoint = Endpoint("Billing")
    endpoint.handles(type_name(BillOrder), BillOrder)(lambda message, context: None)
    for queue in ("Billing", "error"):
        sql.empty(queue)
    sql.insert_minimal("Billing", row["headers"], row["body"].encode())

    outcome = endpoint.process_one(database)

    (failed,) = Queue("error", database).browse(5)
    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert failed.body == row["body"].encode()
    assert failed.headers["NServiceBus.ExceptionInfo.Message"] == (
        "No serializer for the content type 'text/xml'; this endpoint has application/json."
    )


# ------------------------------------------------------------------------------------------------ every type
@pytest.mark.parametrize("seed", range(20))
def test_every_type_of_a_generated_message_comes_back(seed):
    chance = Random(seed)
    for _ in range(50):
        message = generated_values(chance)
        message = replace(
            message, text=re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", message.text), map={"k": None, "ž": "\r\n"}
        )

        assert XML.decode(XML.encode(message), Values) == message


@dataclass
class Tree:
    name: str = ""
    kids: list["Tree"] = field(default_factory=list)
    parent: "Tree | None" = None
    depth: int = field(default=0, init=False)


@dataclass
class Rest:
    word: Word = Word.SHORT
    colours: dict[Colour, float] = field(default_factory=dict)
    sizes: tuple[int | None, ...] = ()
    names: list[str | None] = field(default_factory=list)
    words: set[Word] = field(default_factory=set)
    lists: list[list[int]] = field(default_factory=list)
    kind: Literal["a", "b"] = "a"
    patience: NewType("Patience", timedelta) = timedelta(0)
    data: list[bytes] = field(default_factory=list)
    at: datetime | None = None


def test_what_the_recorded_message_does_not_have_comes_back_too():
    message = Rest(
        Word.SHORT, {Colour.DARK_GREEN: float("-inf"), Colour.RED: 1e16}, (1, None, 2**31), ["", None, "null"], {Word.SHORT}, [[1], []],
        "b", timedelta(days=-1, microseconds=1), [b"", b"\x00"], datetime(2026, 11, 22, 10, 0, 0, 120000, tzinfo=UTC),
    )  # fmt: skip
    tree = Tree("a", [Tree("b", [Tree()]), Tree()], Tree("p"))
    tree.depth = 7

    text = XML.encode(message).decode()

    assert XML.decode(text.encode(), Rest) == message
    assert XML.decode(XML.encode(tree), Tree) == tree
    for part in (
        "<Sizes><Int32>1</Int32><Int32>null</Int32><Int64>2147483648</Int64></Sizes>",
        "<NServiceBus.KeyValuePairOfColourAndDouble><Key>DarkGreen</Key><Value>-INF</Value></NServiceBus.KeyValuePairOfColourAndDouble>",
        "<Words><String>s</String></Words>", "<Lists><ListOfInt32><Int32>1</Int32></ListOfInt32><ListOfInt32>\n</ListOfInt32></Lists>",
        "<At>2026-11-22T10:00:00.12Z</At>", "<Patience>-PT23H59M59.999999S</Patience>",
    ):  # fmt: skip
        assert part in text


def test_base_classes_are_named_as_dotnets_reader_looks_for_them():
    base = message_type("Shop.IOrder")(make_dataclass("IOrder", [("order_id", int)]))
    vip = message_type("Shop.Outer+Vip")(make_dataclass("Vip", [("name", str)], bases=(base,)))

    text = XmlSerializer(namespace="http://shop").encode(vip(1, "x")).decode()

    assert '<Vip xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"' in text
    assert ' xmlns:baseType="Shop.IOrder" xmlns="http://shop/Shop"><OrderId>1</OrderId><Name>x</Name></Vip>' in text


def test_a_type_whose_name_can_name_no_element_is_refused():
    strange = message_type("Shop.My <Order>")(make_dataclass("Strange", [("order_id", int)]))

    with pytest.raises(InvalidMessage, match="'My <Order>' cannot be the name of an element"):
        XML.encode(strange(1))


# ------------------------------------------------------------------------------------------------ forms that are read
@pytest.mark.parametrize(
    ("content", "field_name", "value"),
    [
        ("<order_id>7</order_id>", "order_id", 7),
        ("<OrderId> 7\n</OrderId><Unknown><A/></Unknown>", "order_id", 7),
        ('<OrderId>7</OrderId><Big xsi:nil="true"/>', "big", None),
        ("<OrderId>7</OrderId><Big/>", "big", None),
        ("<OrderId>7</OrderId><Big> null </Big>", "big", None),
        ("<OrderId>7</OrderId><Text/>", "text", ""),
        ("<OrderId>7</OrderId><Text>null</Text>", "text", "null"),
        ("<OrderId>7</OrderId><Echo>1</Echo>", "echo", True),
        ("<OrderId>7</OrderId><Colour>1</Colour>", "colour", Colour.DARK_GREEN),
        ("<OrderId>7</OrderId><Span>1.01:00:01</Span>", "span", timedelta(days=1, seconds=3601)),
        ("<OrderId>7</OrderId><Ratio>INF</Ratio>", "ratio", float("inf")),
        ("<OrderId>7</OrderId><Amount>79228162514264337593543950335</Amount>", "amount", Decimal(2**96 - 1)),
        ("<OrderId>7</OrderId><Numbers>\n <Int32>1</Int32>\n</Numbers>", "numbers", [1]),
        ("<OrderId>7</OrderId><Line>\n</Line>", "line", Line()),
        ("<!-- a --><OrderId>7</OrderId>", "order_id", 7),
    ],
)
def test_the_forms_that_dotnet_reads_are_read(content, field_name, value):
    assert getattr(XML.decode(body(content, "Values"), Values), field_name) == value


def test_elements_are_named_as_the_properties_in_json():
    odd = make_dataclass("Odd", [(name, int) for name in ("order_id", "SKU", "x", "a_1", "OrderNo", "_hidden", "ends_")])
    message = odd(*range(7))

    elements = re.findall(r"<([^/ >?]+)>\d", XML.encode(message).decode())

    assert elements == list(json.loads(JsonSerializer().encode(message)))
    assert XML.decode(XML.encode(message), odd) == message


def test_names_as_declared():
    declared = XmlSerializer(names="declared")

    assert b"><order_id>1</order_id></BillOrder>" in declared.encode(BillOrder(1))
    assert declared.decode(recorded("send-xml")["body"].encode(), BillOrder) == BillOrder(42)
    with pytest.raises(ValueError, match="'pascal' or 'declared'"):
        XmlSerializer(names="camel")


# ------------------------------------------------------------------------------------------------ what is refused, and why
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<OrderId>x</OrderId>", "'x' is no int - at `OrderId`"),
        ("<OrderId></OrderId>", "'' is no int - at `OrderId`"),
        ('<OrderId xsi:nil="true"/>', "There is no value .* - at `OrderId`"),
        ("<Echo>true</Echo>", r"The element OrderId is missing\. It begins"),
        ("<OrderId>1</OrderId><Colour>Blue</Colour>", "'Blue' is no Colour - at `Colour`"),
        ("<OrderId>1</OrderId><Lines><Line/><Line><Price>NaN</Price></Line></Lines>", r"'NaN' is no Decimal - at `Lines\[1\].Price`"),
        ("<OrderId>1</OrderId><Text><b>x</b></Text>", "There are elements, such as b, where a value should be - at `Text`"),
        ("<OrderId>1</OrderId><Map><P><Value>1</Value></P></Map>", r"A pair has no Key or no Value - at `Map\[0\]`"),
        ("<OrderId>1</OrderIds>", "mismatched tag"),
    ],
)
def test_a_body_that_cannot_be_read_says_why_and_where(content, reason):
    with pytest.raises(MessageNotDeserialized, match=f"The body is no Values: .*{reason}"):
        XML.decode(body(content, "Values"), Values)


# without the refusal, each of these would be an order
@pytest.mark.parametrize("start", [
    '<!DOCTYPE a [<!ENTITY id "42">]>', '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>', '<!DOCTYPE a SYSTEM "http://127.0.0.1/a.dtd">',
])  # fmt: skip
def test_document_types_and_entities_are_refused(start):
    order = f"<BillOrder><OrderId>{'&id;' if 'id' in start else 42}</OrderId></BillOrder>"

    with pytest.raises(MessageNotDeserialized, match="DTDForbidden"):
        XML.decode(f"{start}{order}".encode(), BillOrder)
    assert XML.decode(order.replace("&id;", "42").encode(), BillOrder) == BillOrder(42)


@pytest.mark.parametrize("text", ["<BillOrder>&x;</BillOrder>", "", "{}"])
def test_what_is_no_xml_is_refused(text):
    with pytest.raises(MessageNotDeserialized, match="The body is no BillOrder"):
        XML.decode(text.encode(), BillOrder)


def test_a_body_that_is_too_deep_is_refused():
    deep = "<Parent>" * 20_000 + "</Parent>" * 20_000

    with pytest.raises(MessageNotDeserialized, match="recursion"):
        XML.decode(f"<Tree>{deep}</Tree>".encode(), Tree)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"text": "a\x01"}, r"XML cannot carry the character U\+0001 - at `Text`"),
        ({"text": "\ud800"}, r"XML cannot carry the character U\+D800 - at `Text`"),
        ({"text": 5}, "Expected `str`, got `int` - at `Text`"),
        ({"order_id": None}, "Expected `int`, got `NoneType` - at `OrderId`"),
        ({"big": True}, "Expected `int`, got `bool` - at `Big`"),
        ({"day": datetime(2026, 1, 1)}, "Expected `date`, got `datetime` - at `Day`"),
        ({"amount": Decimal("NaN")}, "NaN - at `Amount`"),
        ({"lines": [Line(price="x")]}, r"Expected `Decimal`, got `str` - at `Lines\[0\].Price`"),
        ({"map": {"a": 1}}, r"Expected `str`, got `int` - at `Map\['a'\]`"),
        ({"numbers": "12"}, "Expected `list`, got `str` - at `Numbers`"),
    ],
)
def test_what_xml_cannot_hold_is_refused_at_the_send_by_its_place(wrong, reason):
    with pytest.raises(InvalidMessage, match=f"Values cannot be written as XML: .*{reason}"):
        XML.encode(replace(RECORDED, **wrong))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Any, "Any has no form in XML"), (list, "list has no form in XML: it does not say of what"), (int | str, "which of them a text is"),
        (tuple[int, str], "has no form in XML"), (object, "object has no form in XML"),
    ],
)  # fmt: skip
def test_a_type_that_nservicebus_cannot_write_is_refused_both_ways(kind, reason):
    cls = make_dataclass("Held", [("value", kind)])

    with pytest.raises(InvalidMessage, match=f"{re.escape(reason)}.* - at `value`"):
        XML.encode(cls(1))
    with pytest.raises(MessageNotDeserialized, match=f"{re.escape(reason)}.* - at `value`"):
        XML.decode(b"<Held/>", cls)
    with pytest.raises(InvalidMessage, match="XML is written and read of dataclasses, and dict is none"):
        XML.encode({"a": 1})
