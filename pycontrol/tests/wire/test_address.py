"""Addresses and keys of queues."""

import doctest

import pytest

import rowpost.wire.address
from rowpost.errors import InvalidQueueName
from rowpost.wire.address import IDENTIFIER_LIMIT, Address, parse_address, queue_key

ENGINES = ["postgresql", "sqlserver"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a", Address("a")),
        ("a@b", Address("a", "b")),
        ("a@b@c", Address("a", "b", "c")),
        ("a@[b]@[c]", Address("a", "b", "c")),
        ("a@[]@[c]", Address("a", None, "c")),
        ("a@@c", Address("a", None, "c")),
        ("my.tb[e@[my.[sch@ma]@[my.c@ta]]og]", Address("my.tb[e", "my.[sch@ma", "my.c@ta]og")),
        ("[SpecialCharacters]", Address("[SpecialCharacters]")),
        ("Special_]_Characters@dbo", Address("Special_]_Characters", "dbo")),
        ("q@[]", Address("q")),
        ("a@[b[[]c]", Address("a", "b[[]c")),
        ("a@[b]@[c[[]d]", Address("a", "b", "c[[]d")),
        ("a@b]c", Address("a", "b]c")),
        ("a@b[c", Address("a", "b[c")),
        ('"public"."Sales"', Address("Sales", "public")),
        ('"a""b"."c.d"', Address("c.d", 'a"b')),
        ('"Sales"', Address("Sales")),
        ('in"side', Address('in"side')),
    ],
)
@pytest.mark.promise("address-forms")
def test_every_form_of_an_address_is_read(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a@b",
        "a@[b]@[c]",
        "a@[]@[c]",
        "x@[y]]z]",
        "my.tb[e@[my.[sch@ma]@[my.c@ta]]og]",
        '"public"."Sa@les"',
        '"Sa@[les]"',
        '"""a"""',
        '"x"."""a"""',
    ],
)
@pytest.mark.promise("address-forms")
def test_formatting_is_canonical_and_idempotent(text):
    once = parse_address(text).format()

    assert parse_address(once) == parse_address(text)
    assert parse_address(once).format() == once


@pytest.mark.parametrize("text", ["", "@b", "a@[b", "a@[b]x", "a@[b]x@[c]", "a@[b]x]@[c]", "a@b@c@d", "a@[b]@[c]@[d]"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(InvalidQueueName):
        parse_address(text)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_default_schema_is_left_out_of_the_short_form(engine):
    schema = rowpost.wire.address.DEFAULT_SCHEMA[engine]

    assert parse_address(f"Sales@[{schema}]").short(engine).format() == "Sales"
    assert parse_address("Sales@[eu]").short(engine).format() == "Sales@[eu]"


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("postgresql", "n" * 64),
        ("postgresql", "é" * 32),
        ("sqlserver", "n" * 129),
        ("sqlserver", "🚀" * 65),
        ("postgresql", "line\nbreak"),
        ("sqlserver", "tab\there"),
        ("postgresql", "a$rowpost$b"),
        ("sqlserver", " blank"),
        ("sqlserver", "half\ud83d"),
        ("postgresql", "half\ud83d"),
    ],
)
def test_a_name_that_the_engine_cannot_keep_apart_is_refused(engine, name):
    with pytest.raises(InvalidQueueName):
        parse_address(name).qualified(engine)


@pytest.mark.parametrize(
    ("engine", "name"), [("postgresql", "é" * 31), ("sqlserver", "🚀" * 64), ("postgresql", "n" * 63)]
)
def test_a_name_at_the_limit_is_accepted(engine, name):
    assert parse_address(name).qualified(engine).table == name


def test_postgresql_refuses_a_catalog():
    with pytest.raises(InvalidQueueName, match="another database"):
        parse_address("a@[b]@[c]").qualified("postgresql")


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_are_readable_in_the_default_schema(engine):
    assert queue_key(Address("Sales.Retries"), engine) == "Sales.Retries"
    assert queue_key(Address("Sales", rowpost.wire.address.DEFAULT_SCHEMA[engine]), engine) == "Sales"


@pytest.mark.parametrize("engine", ENGINES)
def test_no_two_addresses_share_a_key(engine):
    long = "x" * (IDENTIFIER_LIMIT[engine] - 1)
    addresses = [
        Address("a.b"),
        Address("b", "a"),
        Address("a"),
        Address("a", "b"),
        Address("a~b"),
        Address(long + "1"),
        Address(long + "2"),
        Address(long),
        Address("b", "a."),
        Address(".b", "a"),
        Address(queue_key(Address("b", "a"), engine)),
    ]

    keys = [queue_key(address, engine) for address in addresses]

    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("table", ["q" * 101, "q" * 102, "q" * 128, "]" * 51, "]" * 128, "[" * 128, "🚀" * 64])
def test_has_perms_by_name_takes_the_procedure_of_every_key(table):
    key = queue_key(Address(table), "sqlserver")

    quoted = f"rowpost.[receive_messages:{key.replace(']', ']]')}]"
    assert len(quoted.encode("utf-16-le")) // 2 <= 128
    assert (key == table) is (len(table) <= 101 and "]" not in table and "🚀" not in table)


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(rowpost.wire.address).failed == 0


def test_an_address_longer_than_the_registry_keeps_is_refused():
    longest = Address("t" * 128, "]" * 60, "c" * 128)

    assert len(longest.qualified("sqlserver").format()) <= 400
    with pytest.raises(InvalidQueueName, match="400"):
        Address("t" * 128, "]" * 128, "]" * 128).qualified("sqlserver")
