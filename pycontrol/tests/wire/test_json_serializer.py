"""JSON beside .NET: what is written is what its reader takes, and what it writes is read."""

import json
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields, make_dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from typing import Any, NewType

import msgspec
import pydantic
import pytest

from rowpost.errors import InvalidMessage, MessageNotDeserialized
from rowpost.sagas.state import decode_state, encode_state
from rowpost.wire.dotnet_values import NAMES, read_duration, time_span, wire_name
from rowpost.wire.json_serializer import DecimalText, JsonSerializer
from rowpost.wire.serialization import named_in_body
from tests.support.recorded_rows import recorded
from tests.support.recorded_values import RECORDED, Colour, Line, Values, generated_values

JSON = JsonSerializer()


class Size(IntEnum):
    SMALL = 1


class Word(Enum):
    SHORT = "s"
    VERY_LONG = "l"


@dataclass
class Loose:
    """Fields whose types say little."""

    anything: Any = None
    one_of: timedelta | int | None = None
    words: dict[Word, Size] = field(default_factory=dict)
    by_colour: dict[Colour, float] = field(default_factory=dict)
    kids: tuple[Line, ...] = ()
    text: DecimalText = Decimal(0)
    colours: list[Colour] = field(default_factory=lambda: [Colour.RED])
    inner: "Painted | None" = None


@dataclass(frozen=True)
class Painted:
    colour: Colour = Colour.DARK_GREEN
    derived: int = field(default=0, init=False)


def test_what_dotnet_writes_of_every_type_is_read():
    assert JSON.decode(recorded("send-values")["body"].encode(), Values) == RECORDED


def test_the_same_values_are_written_as_dotnet_writes_them_but_for_digits_and_escapes():
    theirs, ours = recorded("send-values")["body"], JSON.encode(RECORDED).decode()

    exact = json.JSONDecoder(parse_float=Decimal).decode
    other = {name: (exact(ours)[name], value) for name, value in exact(theirs).items() if exact(ours)[name] != value}
    assert other == {"Clock": ("10:05:01.500000", "10:05:01.5000000")}  # its reader takes both: reader.json
    assert list(exact(ours)) == list(exact(theirs))


# ------------------------------------------------------------------------------------------------ by the rules of its reader
def _number(most: int, scale: int) -> Callable[[str], bool]:
    def takes(text: str) -> bool:
        if not re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", text):
            return False
        number = Decimal(text)
        return abs(number) <= most and -number.as_tuple().exponent <= scale

    return takes


def _text(form: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(f'"(?:{form})"', text) is not None


_DAY, _TIME, _OFFSET = r"\d{4}-\d\d-\d\d", r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,7})?)?", r"(Z|[+-]\d\d:\d\d)?"
#: which JSON the .NET reader takes for each type; held to the recorded cases below
TAKES: dict[str, Callable[[str], bool]] = {
    "decimal?": _number(2**96 - 1, 28),
    "DateTime?": _text(f"{_DAY}(T{_TIME}{_OFFSET})?"),
    "DateTimeOffset?": _text(f"{_DAY}(T{_TIME}{_OFFSET})?"),
    "DateOnly?": _text(_DAY),
    "TimeOnly?": _text(_TIME),
    "TimeSpan?": _text(r"-?(\d{1,8}\.)?([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,7})?"),
    "Guid?": _text(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "byte[]?": _text(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "double?": lambda text: _number(10**308, 10**9)(text),
    "long?": lambda text: re.fullmatch(r"-?\d+", text) is not None and -(2**63) <= int(text) < 2**63,
    "bool?": lambda text: text in ("true", "false"),
    "string?": lambda text: text.startswith('"'),
    "List<int>?": lambda text: text.startswith("["),
    "Dictionary<string,string>?": lambda text: text.startswith("{"),
    "enum?": lambda text: re.fullmatch(r"-?\d+", text) is not None,
    "class?": lambda text: text.startswith("{"),
}
PROPERTIES = {case[".NET type"]: case["property"] for case in recorded("reader")["cases"] if case[".NET type"] in TAKES}


def test_the_rules_agree_with_every_recorded_case():
    cases = [case for case in recorded("reader")["cases"] if case[".NET type"] in TAKES and "%d" not in case["json"]]

    wrong = [
        case for case in cases if (case["json"] == "null" or TAKES[case[".NET type"]](case["json"])) != case["taken"]
    ]
    assert wrong == []
    assert len(cases) > 60


def _property(text: str, name: str) -> str:
    """The JSON of one property, as it stands."""
    decoder, start = json.JSONDecoder(), text.index(f'"{name}":') + len(name) + 3
    return text[start : decoder.raw_decode(text, start)[1]]


def test_every_type_of_a_generated_message_is_written_as_its_reader_takes_it_and_comes_back():
    chance = random.Random(0)
    for _ in range(2000):
        message = generated_values(chance)

        text = JSON.encode(message).decode()

        refused = {
            kind: _property(text, name) for kind, name in PROPERTIES.items() if not TAKES[kind](_property(text, name))
        }
        assert refused == {}
        assert JSON.decode(text.encode(), Values) == message


# ------------------------------------------------------------------------------------------------ what is refused, and why
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"ratio": float("nan")}, r"nan .* `\$.ratio`"),
        ({"ratio": float("-inf")}, r"-inf .* `\$.ratio`"),
        ({"amount": Decimal("NaN")}, r"NaN .* `\$.amount`"),
        ({"lines": [Line(), Line(price=Decimal("Infinity"))]}, r"`\$.lines\[1\].price`"),
        ({"span": 5}, r"Expected `timedelta`, got `int` - at `\$.span`"),
        ({"colour": 7}, r"7 is no Colour - at `\$.colour`"),
        ({"ratio": True}, r"Expected `float`, got `bool`"),
    ],
)
def test_what_no_json_can_hold_is_refused_at_the_send_by_its_place(wrong, place):
    with pytest.raises(InvalidMessage, match=f"Values cannot be written as JSON: .*{place}"):
        JSON.encode(replace(RECORDED, **wrong))


@pytest.mark.parametrize("message", [{"a": [1.5, float("nan")]}, Loose(anything={"a": [1, float("nan")]})])
def test_a_number_that_is_none_is_found_in_values_without_a_type_too(message):
    with pytest.raises(InvalidMessage, match=r"nan is no number of JSON - at `\$\.a\[1\]`"):
        JSON.encode(message)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"OrderId":1,"Colour":7}', r"7 is no Colour - at `\$.Colour`"),
        ('{"OrderId":1,"Span":"25:00:01"}', r"'25:00:01' is no duration.* - at `\$.Span`"),
        ('{"OrderId":"1"}', r"Expected `int`, got `str` - at `\$.OrderId`"),
        ('{"order_id":1,"ratio":"x"}', r"Expected `float \| null`, got `str` - at `\$.ratio`"),
        ('{"Echo":true}', "missing required field `OrderId`"),
        ('{"OrderId":1,}', "trailing comma"),
    ],
)
def test_the_error_says_the_true_reason(body, reason):
    with pytest.raises(MessageNotDeserialized, match=f"The body is no Values: .*{reason}"):
        JSON.decode(body.encode(), Values)


def test_a_body_that_is_too_deep_is_no_message():
    for body, cls in ((b"[" * 200_000, dict), (b'{"a":' * 200_000, dict), (b'{"Anything":' + b"[" * 200_000, Loose)):
        with pytest.raises(MessageNotDeserialized):
            JSON.decode(body, cls)


# ------------------------------------------------------------------------------------------------ forms and names
def test_values_without_a_type_and_of_several_types_cross():
    message = Loose(
        {"a": [timedelta(1), Colour.RED, Decimal("2.50"), Line("s")]}, timedelta(hours=2), {Word.SHORT: Size.SMALL},
        {Colour.DARK_GREEN: 0.5}, (Line("k"),), Decimal("1.20"), [Colour.DARK_GREEN], Painted(),
    )  # fmt: skip

    text = JSON.encode(message)

    assert b'"Anything":{"a":["1.00:00:00",0,2.50,{"Sku":"s","Count":0,"Price":0}]}' in text
    assert b'"OneOf":"02:00:00"' in text and b'"Words":{"s":1}' in text and b'"Text":"1.20"' in text
    read = JSON.decode(text, Loose)
    assert replace(read, anything=None) == replace(message, anything=None)
    patience = make_dataclass("Patient", [("patience", NewType("Patience", timedelta))])
    assert JSON.encode(patience(timedelta(1))) == b'{"Patience":"1.00:00:00"}'
    assert JSON.decode(b'{"Patience":"1.00:00:00"}', patience) == patience(timedelta(1))
    assert JSON.decode(b'{"OneOf":5,"Text":1.20}', Loose) == Loose(one_of=5, text=Decimal("1.20"))


@pytest.mark.parametrize("given", ['"DarkGreen"', '"DARK_GREEN"', '"1"', "1"])
def test_an_enum_is_read_by_value_and_by_name(given):
    assert JSON.decode(f'{{"OrderId":1,"Colour":{given}}}'.encode(), Values).colour is Colour.DARK_GREEN


def test_bodies_in_the_forms_of_earlier_versions_are_read():
    read = JSON.decode(b'{"OrderId":1,"Amount":"19.90","Span":"P1DT3601S","At":"2026-11-22T10:00:00Z"}', Values)

    assert (read.amount, read.span, read.at) == (
        Decimal("19.90"),
        timedelta(1, 3601),
        datetime(2026, 11, 22, 10, tzinfo=UTC),
    )


def test_a_class_that_json_cannot_hold_is_refused_both_ways():
    @dataclass
    class Held:
        value: threading.Event

    with pytest.raises(InvalidMessage, match="Event"):
        JSON.encode(Held(threading.Event()))
    with pytest.raises(InvalidMessage, match="Event"):
        JSON.encode({"value": threading.Event()})
    with pytest.raises(MessageNotDeserialized, match=r"Expected `Event`, got `int` - at `\$.Value`"):
        JSON.decode(b'{"Value":1}', Held)


def test_names_are_as_dotnet_has_them_or_as_declared():
    assert JsonSerializer(names="declared").encode(Line("x")) == b'{"sku":"x","count":0,"price":0}'
    for serializer in (JSON, JsonSerializer(names="declared")):
        assert [serializer.decode(body, Line).sku for body in (b'{"Sku":"x"}', b'{"sku":"x"}')] == ["x", "x"]
    with pytest.raises(MessageNotDeserialized, match=r"it has orderId, the class .*OrderId.* or .*order_id"):
        JSON.decode(b'{"orderId":3}', Values)
    with pytest.raises(ValueError, match=r"'pascal', 'camel', .*'declared'"):
        JsonSerializer(names="Camel")
    with pytest.raises(TypeError, match=r"has no argument camel_case\. names='camel' reads and writes orderId"):
        JsonSerializer(camel_case=True)


#: `OrderId` and `Line2Text` as the naming policies of System.Text.Json write them
POLICIES = {
    "pascal": ("OrderId", "Line2Text"),
    "camel": ("orderId", "line2Text"),
    "snake_lower": ("order_id", "line2_text"),
    "snake_upper": ("ORDER_ID", "LINE2_TEXT"),
    "kebab_lower": ("order-id", "line2-text"),
    "kebab_upper": ("ORDER-ID", "LINE2-TEXT"),
    "declared": ("order_id", "line2_text"),
}


@dataclass
class Remark:
    order_id: int = 0
    line2_text: str = ""


@dataclass
class Note(Remark):
    notes: list[Remark] = field(default_factory=list)


@pytest.mark.parametrize(("names", "written"), POLICIES.items())
def test_every_naming_policy_is_written_and_read_in_nested_classes_too(names, written):
    serializer, note = JsonSerializer(names=names), Note(7, "a", [Remark(8, "b")])

    body = serializer.encode(note)

    found = json.loads(body)
    assert list(found)[:2] == list(written)
    assert list(next(iter(list(found.values())[2])))[:2] == list(written)
    assert serializer.decode(body, Note) == note
    assert serializer.decode(JSON.encode(note), Note) == note
    assert serializer.decode(JsonSerializer(names="declared").encode(note), Note) == note
    assert set(POLICIES) == set(NAMES)


@pytest.mark.parametrize(
    ("name", "names", "written"),
    [("SKU", "pascal", "SKU"), ("SKU", "camel", "sku"), ("IOStream", "camel", "ioStream"), ("AB1", "camel", "aB1"), ("OrderNo", "pascal", "OrderNo"),
     ("XMLHttpRequest", "snake_lower", "xml_http_request"), ("OrderID", "kebab_lower", "order-id"), ("_hidden", "pascal", "_Hidden")],
)  # fmt: skip
def test_capital_letters_are_kept_and_split_as_dotnets_policies_do(name, names, written):
    assert wire_name(name, names) == written
    assert list(json.loads(JsonSerializer(names=names).encode(make_dataclass("Odd", [(name, int)])(1)))) == [written]


# ------------------------------------------------------------------------------------------------ bodies of another class
class Model(pydantic.BaseModel):
    order_id: int = pydantic.Field(default=0, alias="OrderId")


@pytest.mark.parametrize("cls", [Note, Values, Model])
def test_a_body_that_has_none_of_the_names_of_a_class_is_an_error_with_both_lists_of_names(cls):
    with pytest.raises(
        MessageNotDeserialized,
        match=r"none of its properties is one of the class: it has Number, orderId, the class .*OrderId",
    ):
        JSON.decode(b'{"orderId":3,"Number":1,"$type":"x"}', cls)


def test_an_empty_body_and_one_of_which_a_name_is_known_are_read_and_so_is_any_where_it_is_asked_for():
    lenient, empty = JsonSerializer(allow_unknown=True), make_dataclass("Empty", [])

    assert [JSON.decode(body, Note) for body in (b"{}", b'{"$type":"x"}', b'{"OrderId":0,"More":1}')] == [Note()] * 3
    assert JSON.decode(b'{"More":1}', empty) == empty()
    assert (lenient.decode(b'{"More":1}', Note), lenient.decode(b'{"More":1}', Model)) == (Note(), Model())
    with pytest.raises(MessageNotDeserialized, match="missing required field `OrderId`"):
        lenient.decode(b'{"More":1}', Values)


# ------------------------------------------------------------------------------------------------ the ends of the ranges
GREATEST = Values(
    4, False, Decimal(2**96 - 1), datetime.max, datetime.max.replace(tzinfo=UTC), date.max, time.max, timedelta(10675199, 10085, 477580),
    lines=None,
)  # fmt: skip


class Paint(IntEnum):
    RED = 0


@dataclass
class Painting(Values):
    colour: Paint | None = None


def test_the_greatest_values_of_dotnet_are_cut_to_microseconds_and_none_is_rounded_to_the_next_day():
    read = JSON.decode(recorded("send-values-max")["body"].encode(), Painting)

    assert replace(read, colour=None) == Painting(**vars(GREATEST))
    assert JSON.decode(JSON.encode(read), Painting) == read


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("at", "2026-12-31T23:59:59.9999999", datetime(2026, 12, 31, 23, 59, 59, 999999)),
        ("when", "2026-12-31T23:59:59.9999999Z", datetime(2026, 12, 31, 23, 59, 59, 999999, UTC)),
        (
            "when",
            "2026-12-31T23:59:59.9999999+01:00",
            datetime(2026, 12, 31, 23, 59, 59, 999999, timezone(timedelta(hours=1))),
        ),
        ("when", "0001-01-01T00:00:00.0000009+00:00", datetime(1, 1, 1, tzinfo=UTC)),
        ("clock", "23:59:59.9999999", time.max),
        ("span", "1.01:00:01.9999999", timedelta(1, 3601, 999999)),
        ("span", "-1.01:00:01.9999999", -timedelta(1, 3601, 999999)),
        ("span", "-10675199.02:48:05.4775808", -timedelta(10675199, 10085, 477580)),
        ("span", "P1DT1H1.9999999S", timedelta(1, 3601, 999999)),
        ("span", "-PT1.9999999S", -timedelta(0, 1, 999999)),
        ("text", "23:59:59.9999999", "23:59:59.9999999"),
        ("map", {"a": "2026-12-31T23:59:59.9999999"}, {"a": "2026-12-31T23:59:59.9999999"}),
    ],
)
def test_a_seventh_digit_is_cut_off_times_and_durations_and_stays_in_texts(name, text, value):
    body = json.dumps({"OrderId": 1, wire_name(name, "pascal"): text}).encode()

    assert getattr(JSON.decode(body, Values), name) == value


@dataclass
class Timed:
    by_name: dict[str, datetime] = field(default_factory=dict)
    either: int | datetime | None = None
    all: list[time | None] = field(default_factory=list)
    patience: NewType("Moment", datetime) | None = None


class Plain(msgspec.Struct):
    at: datetime
    text: str
    kids: "list[Plain]" = []
    clocks: dict[str, time] = {}
    amount: Decimal = Decimal(0)
    pair: tuple[time, str] | None = None


def test_a_seventh_digit_is_cut_wherever_a_time_may_stand():
    end, last = "9999-12-31T23:59:59.9999999", "23:59:59.9999999"
    timed = {"ByName": {"a": end}, "Either": end, "All": [last, None], "Patience": end}
    kid = {"at": end, "text": last, "clocks": {last: last}, "amount": 1.25, "pair": [last, last]}
    kids = json.dumps({**kid, "kids": [kid]}).replace("1.25", "0.1234567890123456789012345678")

    plain = JSON.decode(kids.encode(), Plain)

    assert JSON.decode(json.dumps(timed).encode(), Timed) == Timed(
        {"a": datetime.max}, datetime.max, [time.max, None], datetime.max
    )
    expected = Plain(
        datetime.max, last, [], {last: time.max}, Decimal("0.1234567890123456789012345678"), (time.max, last)
    )
    assert (msgspec.structs.replace(plain, kids=[]), plain.kids) == (expected, [expected])


@pytest.mark.parametrize(
    "number",
    ["1E999999999", "-1E999999999", "1E-999999999", "0E-999999999", "79228162514264337593543950336", "1e29", "9e-29"],
)
def test_a_number_out_of_the_range_of_dotnets_decimal_is_refused_in_both_directions(number):
    for name, value in (("amount", Decimal(number)), ("lines", [Line(price=Decimal(number))])):
        with pytest.raises(
            InvalidMessage,
            match=rf"out of the range of .NET's decimal, which is from 1E-28 to 7.9E\+28 - at `\$.{name}",
        ):
            JSON.encode(replace(RECORDED, **{name: value}))
    for body in (f'{{"OrderId":1,"Amount":{number}}}', f'{{"OrderId":1,"Lines":[{{"Price":{number}}}]}}'):
        with pytest.raises(MessageNotDeserialized, match="out of the range"):
            JSON.decode(body.encode(), Values)
    with pytest.raises(InvalidMessage, match="out of the range"):
        JSON.encode({"a": [Decimal(number)]})


@pytest.mark.parametrize(
    "number", ["0.003333333333333333333333333333", "1E-28", "0E-40", "79228162514264337593543950335", "1E+28", "0E+99"]
)
def test_what_dotnet_takes_or_rounds_crosses_with_every_digit(number):
    message = replace(RECORDED, amount=Decimal(number))

    assert JSON.decode(JSON.encode(message), Values).amount.as_tuple() == Decimal(number).as_tuple()


def test_integers_of_thousands_of_digits_are_refused():
    with pytest.raises(MessageNotDeserialized, match="out of range"):
        JSON.decode(b'{"OrderId":' + b"1" * 5000 + b"}", Values)
    with pytest.raises(InvalidMessage, match="4300 digits"):
        JSON.encode(replace(RECORDED, big=10**5000))
    with pytest.raises(MessageNotDeserialized, match="too many days"):
        JSON.decode(f'{{"OrderId":1,"Span":"P{"1" * 5000}D"}}'.encode(), Values)


# ------------------------------------------------------------------------------------------------ numbers of enums
class Access(IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Numbered:
    size: Size = Size.SMALL
    access: Access = field(default=Access(0))
    colour: Colour = Colour.RED


@pytest.mark.parametrize("text", ["7", '"7"'])
def test_a_number_that_is_no_member_is_kept_by_an_int_enum(text):
    read = JSON.decode(f'{{"Size":{text}}}'.encode(), Numbered).size

    assert (read, read.value, read.name, isinstance(read, Size)) == (7, 7, "7", True)
    assert JSON.encode(Numbered(read)) == JSON.encode(Numbered(7)) == b'{"Size":7,"Access":0,"Colour":0}'
    assert list(Size) == [Size.SMALL]


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("9", 9), ('"Read, Write"', 3), ('"WRITE"', 2)])
def test_flags_are_read_by_number_and_by_names(text, value):
    read = JSON.decode(f'{{"Access":{text}}}'.encode(), Numbered).access

    assert (read, type(read)) == (Access(value), Access)
    assert f'"Access":{value},'.encode() in JSON.encode(Numbered(access=read))


@pytest.mark.parametrize("text", ["7", '"Blue"', "true", "1.5", "null"])
def test_an_enum_that_cannot_hold_a_number_says_so(text):
    with pytest.raises(MessageNotDeserialized, match=r"is no Colour - at `\$.Colour`"):
        JSON.decode(f'{{"Colour":{text}}}'.encode(), Numbered)


# ------------------------------------------------------------------------------------------------ Newtonsoft.Json, and NServiceBus 3 and 4
NEWTONSOFT = replace(
    RECORDED, order_id=42, at=datetime(2026, 11, 22, 10, 0, 0, 123456), when=datetime(2026, 11, 22, 10, 0, 0, 123456, timezone(timedelta(hours=2))),
    text="Ž€🙂", line=Line("x", 2, Decimal("3.0")), lines=[Line("y", 1, Decimal("0.5"))],
)  # fmt: skip


@pytest.mark.parametrize("row", ["send-values-newtonsoft", "send-values-newtonsoftall"])
def test_every_type_of_value_by_newtonsoft_is_read_with_and_without_the_names_of_types(row):
    body = recorded(row)["body"].encode()

    assert JSON.decode(body, Values) == NEWTONSOFT
    if row.endswith("all"):
        read = JSON.decode(body, dict)
        assert (read["$type"], read["Numbers"], read["Map"], read["Data"]) == (
            "Shop.Messages.Values, nsb",
            [1, 2],
            {"a b": "c"},
            "YWJj",
        )


def test_a_list_whose_type_is_named_is_read_in_an_object_whose_type_is_not():
    assert JSON.decode(b'{"OrderId":1,"Numbers":{"$type":"x","$values":[1]}}', Values).numbers == [1]
    assert JSON.decode(b'{"OrderId":1,"Lines":{"$type":"x","$values":[{"$type":"y","Price":1.10}]}}', Values).lines[
        0
    ].price == Decimal("1.10")


@pytest.mark.parametrize("start", ["[", "\ufeff[", " \n["])
def test_an_array_around_one_message_is_what_nservicebus_3_and_4_send(start):
    body = f'{start}{{"$type":"Shop.Messages.Values, nsb","OrderId":7,"Amount":1.10,"At":"2026-12-31T23:59:59.9999999"}}]'.encode()

    assert JSON.decode(body, Values) == Values(7, amount=Decimal("1.10"), at=datetime(2026, 12, 31, 23, 59, 59, 999999))
    assert named_in_body(body, JSON) == ["Shop.Messages.Values"]
    assert JSON.decode(b"[1]", list) == [1]


@pytest.mark.parametrize(("body", "number"), [(b"[]", 0), (b'[{"OrderId":1},{"OrderId":2}]', 2)])
def test_an_array_of_several_messages_is_refused_so_that_none_is_lost(body, number):
    for cls in (Values, dict):
        with pytest.raises(
            MessageNotDeserialized, match=f"The array holds {number} messages, and a row of a queue holds one"
        ):
            JSON.decode(body, cls)


def test_a_saga_keeps_every_digit_of_its_state():
    @dataclass
    class State:
        number: int = 0
        amount: Decimal = Decimal(0)
        rest: Any = None

    text = encode_state(State(12345678901234567890123, Decimal("0.12345678901234567890123"), 1), "Orders")

    assert decode_state(text, State, "Orders", {}, ()) == State(
        12345678901234567890123, Decimal("0.12345678901234567890123"), 1
    )
    assert decode_state('{"Amount":"19.90"}', State, "Orders", {}, ()).amount == Decimal("19.90")


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "00:00:00"),
        (timedelta(days=1, seconds=3601), "1.01:00:01"),
        (timedelta(microseconds=-1), "-00:00:00.0000010"),
        (timedelta(days=-1), "-1.00:00:00"),
    ],
)
def test_durations_are_written_as_time_spans_and_read_in_both_forms(duration, text):
    assert time_span(duration) == text
    assert read_duration(text) == duration
    for other in ("P", "PT", "", "1", "1:2", "24:00:00", "00:60:00", "P1Y", "999999999999.00:00:00"):
        with pytest.raises(ValueError, match="duration"):
            read_duration(other)


def test_the_message_of_the_recording_has_every_type():
    assert {f.name for f in fields(Values)} == {
        re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in json.loads(recorded("send-values")["body"])
    }
