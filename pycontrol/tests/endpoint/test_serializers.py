"""The serializer that an endpoint uses for a message: by its content type, a default, and one of the user's own."""

import pickle
from dataclasses import dataclass

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import message_type
from rowpost.wire.xml_serializer import XmlSerializer

TYPES, CONTENT = "NServiceBus.EnclosedMessageTypes", "NServiceBus.ContentType"


@message_type("Shop.Said")
@dataclass(frozen=True)
class Said:
    text: str


class Reversed:
    """Writes the text backwards, and counts."""

    content_type = "text/reversed"

    def __init__(self):
        self.calls = []

    def encode(self, message):
        self.calls.append("encode")
        return message.text[::-1].encode()

    def decode(self, body, cls):
        self.calls.append("decode")
        return cls(body.decode()[::-1])


class Nameless(Reversed):
    content_type = ""


@pytest.fixture
def heard(database, queue, sql):
    """Handle the messages of Sales with these serializers, and return what became of them and what handlers got."""
    sql.empty("error")

    def handle(*serializers, times=1):
        seen = []
        sales = Endpoint("Sales", serializers=serializers, recoverability=Recoverability(0, 0))
        sales.handles("Shop.Said", Said)(lambda message, context: seen.append(message))
        return [sales.process_one(database).kind for _ in range(times)], seen

    return handle


@pytest.mark.parametrize("content_type", [None, "", "absent"])
@pytest.mark.parametrize(
    ("first", "body"), [(JsonSerializer, b'{"Text":"hello"}'), (XmlSerializer, b"<Said><Text>hello</Text></Said>")]
)
def test_a_message_without_a_content_type_is_read_by_the_first_serializer(queue, heard, content_type, first, body):
    headers = {TYPES: "Shop.Said"} if content_type == "absent" else {TYPES: "Shop.Said", CONTENT: content_type}
    queue.send(body, headers)

    assert heard(first(), Reversed()) == ([Kind.HANDLED], [Said("hello")])


def test_a_serializer_of_the_users_own_writes_and_reads_messages(database, queue, heard):
    own = Reversed()
    with Endpoint("Sales", serializers=[own]).open(database) as bus:
        bus.send_local(Said("hello"))

    (sent,) = queue.browse()
    assert heard(JsonSerializer(), own) == ([Kind.HANDLED], [Said("hello")])
    assert (sent.body, sent.headers[CONTENT], own.calls) == (b"olleh", "text/reversed", ["encode", "decode"])


def test_the_content_type_of_each_message_selects_its_serializer(queue, heard):
    for body, content_type in ((b'{"Text":"json"}', "application/json; charset=utf-8"), (b"nwo", "text/reversed")):
        queue.send(body, {TYPES: "Shop.Said", CONTENT: content_type})
    queue.send(pickle.dumps(1), {TYPES: "Shop.Said", CONTENT: "application/pickle"})

    kinds, seen = heard(JsonSerializer(), Reversed(), times=3)

    assert kinds == [Kind.HANDLED, Kind.HANDLED, Kind.MOVED_TO_ERROR]
    assert seen == [Said("json"), Said("own")]


@pytest.mark.parametrize("serializers", [[Nameless()], [JsonSerializer(), Nameless()]], ids=["first", "another"])
def test_a_serializer_without_a_content_type_is_refused(serializers):
    with pytest.raises(SettingsError, match="The serializer Nameless has no content_type"):
        Endpoint("Sales", serializers=serializers)
