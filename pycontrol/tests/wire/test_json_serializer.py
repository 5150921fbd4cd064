"""JSON beside .NET: what is written is what its reader takes, and what it writes is read."""

import json
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields, make_dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NewType

import pytest

from rowpost.errors import InvalidMessage, MessageNotDeserialized
from rowpost.sagas.state import decode_state, encode_state
from rowpost.wire.dotnet_values import read_duration, time_span
from rowpost.wire.json_serializer import DecimalText, JsonSerializer
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

    wrong = [case for case in cases if (case["json"] == "null" or TAKES[case[".NET type"]](case["json"])) != case["taken"]]
    assert wrong == []
    assert len(cases) > 60


def _property(text: str, name: str) -> str:
    """The JSON of one property, as it stands."""
    decoder, start = json.JSONDecoder(), text.index(f'"{name}":') + len(name) + 3
    return text[start : decoder.raw_decode(text, start)[1]]


@pytest.mark.parametrize("seed", range(20))
def test_every_type_of_a_generated_message_is_written_as_its_reader_takes_it_and_comes_back(seed):
    chance = random.Random(seed)
    for _ in range(100):
        message = generated_values(chance)

        text = JSON.encode(message).decode()

        refused = {kind: _property(text, name) for kind, name in PROPERTIES.items() if not TAKES[kind](_property(text, name))}
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
        ('[{"OrderId":1}]', "Expected `object`, got `array`"),
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

    assert (read.amount, read.span, read.at) == (Decimal("19.90"), timedelta(1, 3601), datetime(2026, 11, 22, 10, tzinfo=UTC))


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


def test_names_are_as_dotnet_has_them_or_as_declared_and_camel_case_is_read_where_asked():
    assert JsonSerializer(names="declared").encode(Line("x")) == b'{"sku":"x","count":0,"price":0}'
    for serializer in (JSON, JsonSerializer(names="declared")):
        assert [serializer.decode(body, Line).sku for body in (b'{"Sku":"x"}', b'{"sku":"x"}')] == ["x", "x"]
    assert JsonSerializer(camel_case=True).decode(b'{"orderId":3}', Values).order_id == 3
    with pytest.raises(MessageNotDeserialized, match="OrderId"):
        JSON.decode(b'{"orderId":3}', Values)
    with pytest.raises(ValueError, match="'pascal' or 'declared'"):
        JsonSerializer(names="camel")


def test_a_saga_keeps_every_digit_of_its_state():
    @dataclass
    class State:
        number: int = 0
        amount: Decimal = Decimal(0)
        rest: Any = None

    text = encode_state(State(12345678901234567890123, Decimal("0.12345678901234567890123"), 1), "Orders")

    assert decode_state(text, State, "Orders", {}, ()) == State(12345678901234567890123, Decimal("0.12345678901234567890123"), 1)
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
    assert read_duration("00:00:00.9999996") == read_duration("PT1S") == timedelta(seconds=1)
    for other in ("P", "PT", "", "1", "1:2", "24:00:00", "00:60:00", "P1Y", "999999999999.00:00:00"):
        with pytest.raises(ValueError, match="duration"):
            read_duration(other)


def test_the_message_of_the_recording_has_every_type():
    assert {f.name for f in fields(Values)} == {
        re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in json.loads(recorded("send-values")["body"])
    }
