"""The table of the guide to message bodies says what is written and read."""

import re
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest

from rowpost.wire.dotnet_values import NAMES as WAYS
from rowpost.wire.json_serializer import DecimalText, JsonSerializer
from rowpost.wire.message_types import message_type
from rowpost.wire.xml_serializer import XmlSerializer
from tests.support.documents import ROOT
from tests.support.recorded_values import Colour

GUIDE = (ROOT / "docs" / "guides" / "message-bodies.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(.+?)` \| `(.+?)` \| .+ \| `(.+?)` \| `(.+?)` \|$", GUIDE, re.MULTILINE)


class Word(Enum):
    LONG = "long"


@message_type("Shop.Line")
@dataclass
class Line:
    sku: str = ""
    count: int = 0


NAMES = {each.__name__: each for each in (date, datetime, time, timedelta, Decimal, UUID, Colour, Word, Line)} | {
    "UTC": UTC,
    "DecimalText": DecimalText,
}


def test_the_table_has_every_row():
    assert len(ROWS) == 19


@pytest.mark.parametrize(("kind", "example", "json", "xml"), ROWS)
def test_a_row_is_what_is_written_and_read(kind, example, json, xml):
    of_kind, value = eval(kind.replace("\\|", "|"), dict(NAMES)), eval(example, dict(NAMES))
    holder = make_dataclass("Holder", [("value", of_kind)])
    element = xml if xml.startswith("<Value") else f"<Value>{xml}</Value>"

    for serializer, expected in ((JsonSerializer(), f'{{"Value":{json}}}'), (XmlSerializer(), f">{element}</Holder>")):
        written = serializer.encode(holder(value))
        assert written.decode().endswith(expected)
        assert serializer.decode(written, holder) == holder(value)


def test_the_guide_has_a_row_for_each_way_of_naming_that_says_what_is_written():
    holder = make_dataclass("Holder", [("order_id", int)])
    rows = re.findall(r'^\|.*\| `"(\w+)"`.* \| ([\w-]+).* \|$', GUIDE, re.MULTILINE)

    assert [name for name, _ in rows] == list(WAYS)
    for name, written in rows:
        assert JsonSerializer(names=name).encode(holder(1)).decode() == f'{{"{written}":1}}'
