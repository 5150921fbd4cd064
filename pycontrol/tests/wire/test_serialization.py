"""Messages are written and read by threads that meet a class for the first time at the same moment."""

from tests.support.at_once import run_at_once

PROGRAM = """
from dataclasses import field, make_dataclass
from rowpost.wire.json_serializer import JsonSerializer

json = JsonSerializer()

def exchange():
    order = Order(7, [Line("tea", 2)])
    assert json.decode(json.encode(order), Order) == order

for _ in range(300):
    Line = make_dataclass("Line", [("name", str), ("count", int)])
    Order = make_dataclass("Order", [("number", int), ("lines", list[Line], field(default_factory=list))])
    at_once(exchange)
"""


def test_threads_that_meet_a_class_of_messages_at_once():
    run_at_once(PROGRAM)
