"""The messages of PostgreSQL's output plugin, recorded from PostgreSQL 18, and random rows in both column formats."""

import random
import struct
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from rowpost.database.dialects.pgoutput import (
    Begin,
    Column,
    Commit,
    Decoder,
    Insert,
    Relation,
    decode,
    format_lsn,
    parse_lsn,
)

BEGIN = b"B\x00\x00\x00\x00\x01q\xe8\xc8\x00\x03\x04\x0f\xa9\xa3/\x0f\x00\x00\x02\xf2"
RELATION = (
    b"R\x00\x00@\x01public\x00q\x00d\x00\x05\x00id\x00\x00\x00\x0b\x86\xff\xff\xff\xff\x00expires\x00\x00\x00\x04Z\xff\xff\xff\xff"
    b"\x00headers\x00\x00\x00\x00\x19\xff\xff\xff\xff\x00body\x00\x00\x00\x00\x11\xff\xff\xff\xff\x01seq\x00\x00\x00\x00\x14\xff\xff\xff\xff"
)
INSERT = (
    b"I\x00\x00@\x01N\x00\x05b\x00\x00\x00\x10\xc1`\xbd%\xa1\xc3F\xbc\xb4\x8cb?\xc6\xd4|tnb\x00\x00\x00\x02{}b\x00\x00\x00\x011"
    b"b\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x01"
)
COMMIT = b"C\x00\x00\x00\x00\x00\x01q\xe8\xc8\x00\x00\x00\x00\x01q\xe8\xf8\x00\x03\x04\x0f\xa9\xa3/\x0f"
COLUMNS = ("id", "expires", "headers", "body", "seq")
TYPES = {"id": 2950, "expires": 1114, "headers": 25, "body": 17, "seq": 20}
QUEUE = Relation(16385, "public", "q", tuple(Column(name, TYPES[name]) for name in COLUMNS))
AT = datetime(2026, 11, 25, 2, 50, 47, 199503)


def test_recorded_messages_are_decoded():
    begin, commit = decode(BEGIN), decode(COMMIT)

    assert begin == Begin(parse_lsn("0/171E8C8"), begin.at)
    assert commit == Commit(parse_lsn("0/171E8C8"), parse_lsn("0/171E8F8"), begin.at)
    assert abs(begin.at - AT) < timedelta(days=1)
    assert decode(RELATION) == QUEUE
    assert decode(INSERT) == Insert(16385, INSERT, 6)


def test_a_recorded_row_has_the_wanted_columns_in_the_wanted_order():
    decoder = Decoder(("seq", "body", "expires", "id"))
    decoder.add(decode(RELATION))

    assert decoder.values(decode(INSERT)) == [1, b"1", None, "c160bd25-a1c3-46bc-b48c-623fc6d47c74"]


@pytest.mark.parametrize("data", [b"Y\x00\x00", b"O\x00", b"U\x00\x00@\x01", b"D\x00\x00@\x01", b"T\x00\x00\x00\x01\x00\x00\x00@\x01", b"M\x00"])
def test_other_messages_are_ignored(data):
    assert decode(data) is None


@pytest.mark.parametrize("data", [BEGIN, RELATION, COMMIT, INSERT])
def test_a_message_that_ends_early_is_an_error(data):
    decoder = Decoder(COLUMNS)
    decoder.add(QUEUE)
    for length in range(len(data) - (4 if data is BEGIN else 8)):  # the end of BEGIN is the transaction's number, which is not read
        with pytest.raises(ValueError, match=r"ends early|without a new row"):
            found = decode(data[:length])
            decoder.values(found)


def test_a_row_whose_relation_is_not_known_is_an_error():
    with pytest.raises(ValueError, match="before its description"):
        Decoder(COLUMNS).values(decode(INSERT))


def test_a_table_that_is_no_queue_is_an_error():
    with pytest.raises(ValueError, match=r"public.q has no column body"):
        Decoder(COLUMNS).add(Relation(1, "public", "q", tuple(each for each in QUEUE.columns if each.name != "body")))
    with pytest.raises(ValueError, match="has the type 3802"):
        Decoder(COLUMNS).add(Relation(1, "public", "q", (*QUEUE.columns[:-1], Column("seq", 3802))))


def test_an_lsn_survives_its_text():
    chance = random.Random(1)
    for lsn in [0, 2**64 - 1, *(chance.randrange(2 ** chance.randint(1, 64)) for _ in range(1000))]:
        assert parse_lsn(format_lsn(lsn)) == lsn


def binary(value) -> bytes:
    if isinstance(value, datetime):
        return struct.pack("!q", (value - datetime(2000, 1, 1)) // timedelta(microseconds=1))
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, int):
        return struct.pack("!q", value)
    return value.encode() if isinstance(value, str) else value


def text(value) -> bytes:
    return b"\\x" + value.hex().encode() if isinstance(value, bytes) else str(value).encode()


def random_row(chance: random.Random) -> dict[str, object]:
    characters = [
        chr(chance.choice((chance.randrange(1, 0x80), chance.randrange(0xA0, 0xD800), chance.randrange(0xE000, 0x110000))))
        for _ in range(chance.randrange(40))
    ]
    at = datetime.min + timedelta(microseconds=chance.randrange((datetime.max - datetime.min) // timedelta(microseconds=1)))
    return {
        "id": UUID(int=chance.randrange(2**128)),
        "expires": chance.choice((None, at)),
        "headers": "".join(characters),
        "body": chance.choice((None, b"", chance.randbytes(chance.randrange(300)))),
        "seq": chance.randrange(-(2**63), 2**63),
    }


@pytest.mark.parametrize("seed", range(300))
def test_a_row_is_read_back_in_each_format_and_each_choice_of_columns(seed):
    """An additional column, such as the readable body, is skipped."""
    chance = random.Random(seed)
    row, order = random_row(chance), chance.sample(COLUMNS, len(COLUMNS))
    data = b"I" + struct.pack("!I", 7) + b"N" + struct.pack("!H", 6) + b"t" + struct.pack("!i", 4) + b"skip"
    for name in order:
        if row[name] is None:
            data += b"n"
        else:
            form, convert = chance.choice(((b"t", text), (b"b", binary)))
            value = convert(row[name])
            data += form + struct.pack("!i", len(value)) + value
    wanted = order[: chance.randint(1, 5)]
    decoder = Decoder(wanted)
    decoder.add(Relation(7, "public", "q", (Column("bodystring", 25), *(Column(name, TYPES[name]) for name in order))))

    found = decoder.values(decode(data))

    assert found == [str(row[name]) if name == "id" else row[name] for name in wanted]
