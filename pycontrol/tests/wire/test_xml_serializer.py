"""XML beside .NET: what its serializer writes is read, and written again byte for byte."""

import json
import re
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from random import Random
from typing import Any, Literal, NewType

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage, MessageNotDeserialized
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import message_type, type_name
from rowpost.wire.serialization import named_in_body
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
def test_an_endpoint_reads_recorded_rows_of_both_serializers_and_answers_with_its_first(
    target, database, sql, make_queue, name
):
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
def test_every_type_of_a_generated_message_comes_back():
    chance = Random(0)
    for _ in range(1000):
        message = generated_values(chance)
        message = replace(message, map={"k": None, "ž": "\r\n"})

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
        ("<OrderId>+7</OrderId>", "order_id", 7),
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
    odd = make_dataclass(
        "Odd", [(name, int) for name in ("order_id", "SKU", "x", "a_1", "OrderNo", "_hidden", "ends_")]
    )
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
        ("<OrderId>1E3</OrderId>", "'1E3' is no int - at `OrderId`"),
        ("<OrderId>1.0</OrderId>", "'1.0' is no int - at `OrderId`"),
        ('<OrderId xsi:nil="true"/>', "There is no value .* - at `OrderId`"),
        ("<Echo>true</Echo>", r"The element OrderId is missing\. It begins"),
        ("<OrderId>1</OrderId><Colour>Blue</Colour>", "'Blue' is no Colour - at `Colour`"),
        (
            "<OrderId>1</OrderId><Lines><Line/><Line><Price>NaN</Price></Line></Lines>",
            r"'NaN' is no Decimal - at `Lines\[1\].Price`",
        ),
        (
            "<OrderId>1</OrderId><Text><b>x</b></Text>",
            "There are elements, such as b, where a value should be - at `Text`",
        ),
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


@pytest.mark.parametrize(
    "number", ["1E999999999", "-1E999999999", "1E-999999999", "0E-999999999", "79228162514264337593543950336"]
)
def test_a_number_out_of_the_range_of_dotnets_decimal_is_refused_in_both_directions(number):
    with pytest.raises(
        MessageNotDeserialized,
        match=r"out of the range of .NET's decimal, which is from 1E-28 to 7.9E\+28 - at `Amount`",
    ):
        XML.decode(body(f"<OrderId>1</OrderId><Amount>{number}</Amount>", "Values"), Values)
    with pytest.raises(InvalidMessage, match=r"out of the range of .NET's decimal.* - at `Lines\[0\].Price`"):
        XML.encode(replace(RECORDED, lines=[Line(price=Decimal(number))]))


@pytest.mark.parametrize(
    ("number", "written"), [("1E+28", "1" + "0" * 28), ("1E-28", "0." + "0" * 27 + "1"), ("0E+99", "0")]
)
def test_a_decimal_of_dotnet_is_written_in_full(number, written):
    assert f"<Amount>{written}</Amount>" in XML.encode(replace(RECORDED, amount=Decimal(number))).decode()


# ------------------------------------------------------------------------------------------------ the ends of the ranges
class Paint(IntEnum):
    RED = 0


class Access(IntFlag):
    READ = 1
    WRITE = 2


@message_type("Shop.Messages.Values")
@dataclass
class Painting(Values):
    colour: Paint | None = None
    access: Access | None = None


def test_the_greatest_values_of_dotnet_are_cut_to_microseconds_and_none_is_rounded_to_the_next_day():
    read = XML.decode(recorded("send-xml-values-max")["body"].encode(), Painting)

    assert (read.at, read.when, read.clock) == (datetime.max, datetime.max.replace(tzinfo=UTC), time.max)
    assert (read.span, read.amount) == (timedelta(10675199, 10085, 477580), Decimal(2**96 - 1))
    assert (read.colour, isinstance(read.colour, Paint)) == (7, True)
    assert b"<Colour>7</Colour>" in XML.encode(read)
    assert XML.decode(XML.encode(read), Painting) == read


@pytest.mark.parametrize(
    ("element", "text", "value"),
    [
        ("At", "2026-12-31T23:59:59.9999999", datetime(2026, 12, 31, 23, 59, 59, 999999)),
        ("When", "2026-12-31T23:59:59.9999999Z", datetime(2026, 12, 31, 23, 59, 59, 999999, UTC)),
        (
            "When",
            "2026-12-31T23:59:59.9999999+01:00",
            datetime(2026, 12, 31, 23, 59, 59, 999999, timezone(timedelta(hours=1))),
        ),
        ("Clock", "23:59:59.9999999", time.max),
        ("Span", "-P1DT1H1.9999999S", -timedelta(1, 3601, 999999)),
        ("Text", "23:59:59.9999999", "23:59:59.9999999"),
    ],
)
def test_a_seventh_digit_is_cut_off_times_and_durations_and_stays_in_texts(element, text, value):
    read = XML.decode(body(f"<OrderId>1</OrderId><{element}>{text}</{element}>", "Values"), Values)

    assert getattr(read, element.lower()) == value


@pytest.mark.parametrize(
    ("text", "value", "written"),
    [("Read, Write", 3, "Read, Write"), ("9", 9, "9"), ("0", 0, "0"), ("Write", 2, "Write")],
)
def test_flags_are_written_as_dotnet_does_by_their_names_or_by_a_number(text, value, written):
    read = XML.decode(body(f"<OrderId>1</OrderId><Access>{text}</Access>", "Values"), Painting)

    assert (read.access, type(read.access)) == (Access(value), Access)
    assert f"<Access>{written}</Access>".encode() in XML.encode(read)


# ------------------------------------------------------------------------------------------------ control characters
def test_control_characters_are_read_and_written_as_nservicebus_does():
    theirs = recorded("send-xml-control-characters")["body"]

    read = XML.decode(theirs.encode(), Values)

    assert read.text == "a\x01b\0c\nd"  # a line break is one character for every reader of XML
    assert b"<Text>a&#x1;b&#x0;c\nd</Text>" in XML.encode(read)


ODD = [*map(chr, range(32)), "\x7f", "\ufffe", "\uffff", "\ue000", "\ue001"]


@pytest.mark.parametrize("character", ODD)
def test_every_character_of_a_text_comes_back(character):
    note = replace(
        RECORDED, text=f"{character}1;{character}&#x1;", map={character: "\ue000\x02"}, lines=[Line(character * 2)]
    )

    assert XML.decode(XML.encode(note), Values) == note


@pytest.mark.parametrize("code", ["&#1;", "&#x01;", "&#x0001;", "&#01;"])
def test_a_reference_is_read_in_every_spelling_and_not_where_it_is_none(code):
    content = f"<OrderId>1</OrderId><!-- {code} --><Text>&#xE000;{code}\ue001<![CDATA[{code}]]>&amp;#x1;</Text>"

    assert XML.decode(body(content, "Values"), Values).text == f"\ue000\x01\ue001{code}&#x1;"
    for encoding in ("utf-16", "latin-1"):
        document = (
            f'<?xml version="1.0" encoding="{encoding}"?><Values><OrderId>1</OrderId><Text>\xe4{code}</Text></Values>'
        )
        assert XML.decode(document.encode(encoding), Values).text == "\xe4\x01"


@pytest.mark.parametrize(
    "content",
    [
        "<Text>&#xD800;</Text>",
        "<Text>&#x1;</Texts>",
        "<![CDATA[&#x1;",
        "<Text>&x;&#x1;</Text>",
        pytest.param("".join(map(chr, range(0xE000, 0xF900))) + "&#x1;", id="no mark is left"),
    ],
)
def test_what_is_odd_and_broken_is_refused(content):
    with pytest.raises(MessageNotDeserialized):
        XML.decode(body(f"<OrderId>1</OrderId>{content}", "Values"), Values)


def test_document_types_are_refused_beside_control_characters_too():
    for start in ("", '<?xml version="1.0" encoding="utf-16"?>'):
        with pytest.raises(MessageNotDeserialized, match="DTDForbidden"):
            XML.decode(
                f"{start}<!DOCTYPE a [<!ENTITY id '42'>]><BillOrder><OrderId>&id;</OrderId>&#x1;</BillOrder>".encode(),
                BillOrder,
            )


# ------------------------------------------------------------------------------------------------ NServiceBus 3 and 4, and writers of .NET
@message_type("Shop.Messages.Messages")
@dataclass
class Messages:
    count: int


START = '<Messages xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns="http://tempuri.net/Shop.Messages">'
ONE = "<BillOrder>\n<OrderId>42</OrderId>\n</BillOrder>"


@pytest.mark.parametrize("start", [
    "", "\r\n", "\ufeff", "\ufeff\n ", '<?xml version="1.0" ?>\n', '\n<?xml version="1.0"?>', '<?xml version="1.0" encoding="utf-16"?>\r\n',
    "<?xml version='1.0' encoding='UTF-16'?>", '\ufeff\n<?xml version="1.0" encoding="utf-8" standalone="yes"?>',
])  # fmt: skip
@pytest.mark.parametrize(
    "message",
    [
        f"{START}\n{ONE}\n</Messages>",
        '<BillOrder xmlns="http://tempuri.net/Shop.Messages"><OrderId>42</OrderId></BillOrder>',
    ],
)
def test_a_message_of_nservicebus_3_and_4_and_what_a_string_writer_declares_is_read(start, message):
    document = f"{start}{message}"

    for encoded in (document.encode(), document.encode("utf-16")) if "utf-8" not in start else (document.encode(),):
        assert XML.decode(encoded, BillOrder) == BillOrder(42)
        assert named_in_body(encoded, XML) == ["Shop.Messages.BillOrder"]


@pytest.mark.parametrize(("messages", "number"), [("", 0), (ONE * 2, 2)])
def test_several_messages_in_one_body_are_refused_so_that_none_is_lost(messages, number):
    for cls in (BillOrder, dict):
        with pytest.raises(
            MessageNotDeserialized,
            match=f"The element Messages holds {number} messages, and a row of a queue holds one",
        ):
            XML.decode(f"{START}{messages}</Messages>".encode(), cls)


def test_a_class_whose_name_is_messages_is_read():
    assert XML.decode(XML.encode(Messages(7)), Messages) == Messages(7)


@pytest.mark.parametrize("kind", ["json", "xml"])
def test_an_endpoint_handles_a_message_of_nservicebus_4_without_headers_of_types(target, database, sql, kind):
    seen = []
    endpoint = Endpoint("Billing", serializers=[XML] if kind == "xml" else [JsonSerializer()])
    endpoint.handles(type_name(BillOrder), BillOrder)(lambda message, context: seen.append(message))
    sent = (
        f"{START}{ONE}</Messages>"
        if kind == "xml"
        else '[{"$type":"Shop.Messages.BillOrder, Shop.Messages","OrderId":42}]'
    )
    sql.empty("Billing")
    sql.insert_minimal("Billing", "", sent.encode())

    outcome = endpoint.process_one(database)

    assert (outcome.kind, seen) == (Kind.HANDLED, [BillOrder(42)]), outcome.error


# ------------------------------------------------------------------------------------------------ names
def test_a_body_that_has_none_of_the_elements_of_a_class_is_an_error_with_both_lists_of_names():
    lenient = XmlSerializer(allow_unknown=True)

    with pytest.raises(
        MessageNotDeserialized,
        match="none of its elements is one of the class: it has orderId, Number, the class OrderId",
    ):
        XML.decode(body("<orderId>1</orderId><Number/>"), BillOrder)
    with pytest.raises(MessageNotDeserialized, match="it has A, the class Name, Kids, Parent, Depth"):
        XML.decode(b"<Tree><A/></Tree>", Tree)
    assert (lenient.decode(b"<Tree><A/></Tree>", Tree), XML.decode(b"<Tree/>", Tree)) == (Tree(), Tree())


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("Shop.Messages.Wrapped`1[[System.Int32, System.Private.CoreLib, Version=10.0.0.0]]", "WrappedOfInt32"),
        ("Shop.Messages.Pair`2[[Shop.A, Shop],[Shop.Box`1[[Shop.Outer+B, Shop]], Shop]]", "PairOfAAndBoxOfB"),
        ("Shop.Messages.Outer+Inner", "Inner"),
    ],
)
def test_generic_and_nested_types_are_elements_as_nservicebus_names_them(name, element):
    cls = message_type(name)(make_dataclass("Generic", [("order_id", int)]))

    text = XML.encode(cls(1)).decode()

    assert text.endswith(f' xmlns="http://tempuri.net/Shop.Messages"><OrderId>1</OrderId></{element}>')
    assert XML.decode(text.encode(), cls) == cls(1)
