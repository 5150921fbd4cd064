"""A message with a value of every type goes to the other side and comes back as it was, in JSON and in XML."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from rowpost.wire.headers import CONTENT_TYPE
from rowpost.wire.json_serializer import JsonSerializer
from tests.support.recorded_values import RECORDED, Line, Values

JSON = JsonSerializer()
#: NServiceBus's XML serializer knows no dictionary, DateOnly and TimeOnly, and escapes no U+2028
IN_XML = replace(RECORDED, map=None, day=None, clock=None, lines=[Line("y", 1, Decimal("0.5"))], text="Ž€🙂<&>'\"")


@pytest.mark.parametrize(
    ("serializer", "content_type", "values"),
    [("json", "application/json", RECORDED), ("xml", "text/xml", IN_XML)],
    ids=["json", "xml"],
)
def test_values_of_every_type_go_and_come_back(stage, serializer, content_type, values):
    asker, answerer = stage.both(serializer=serializer)
    asked = replace(values, echo=True)

    asker.send("Values", json.loads(JSON.encode(asked)), to=stage.answerer)

    (came,) = answerer.wait_for("handled", "Values")
    (back,) = asker.wait_for("handled", "Values")
    assert came["headers"][CONTENT_TYPE] == back["headers"][CONTENT_TYPE] == content_type
    assert read(came) == asked
    assert read(back) == values


def read(report) -> Values:
    return JSON.decode(json.dumps(report["body"]).encode(), Values)
