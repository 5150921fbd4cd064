"""Endpoints whose names, or whose schemas, have characters that addresses and SQL use for themselves."""

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.outcome import Kind
from rowpost.wire.address import parse_address

PING = {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Ping"}


def sent_to_itself(endpoint, database):
    """Let an endpoint send a message to itself, and return what its handler got."""
    seen = []
    endpoint.handles("Shop.Messages.Ping")(lambda body, context: seen.append(body))
    with endpoint.open(database) as bus:
        bus.send_local(b"{}", headers=PING)
    assert endpoint.process_one(database).kind is Kind.HANDLED
    return seen


@pytest.mark.parametrize("name", ["[SpecialCharacters]", "Special_]_Characters", 'it\'s; "here"'])
@pytest.mark.promise("special-characters-in-names")
def test_an_endpoint_whose_name_has_special_characters_sends_to_itself(make_queue, database, name, not_on_babelfish):
    not_on_babelfish("cannot create procedures whose names hold quotes or brackets")
    make_queue(name)

    assert sent_to_itself(Endpoint(name), database) == [b"{}"]


@pytest.mark.parametrize("schema", ["db@", "d]b[@"])
@pytest.mark.promise("special-characters-in-names")
def test_an_endpoint_in_a_schema_with_an_at_sign_sends_to_itself(make_queue, database, sql, schema, not_on_babelfish):
    not_on_babelfish("cannot create procedures whose names hold brackets")
    name = f"Orders@[{schema.replace(']', ']]')}]"
    sql.run(f"CREATE SCHEMA {sql.database.dialect.quote(schema)}")
    make_queue(name)

    assert sent_to_itself(Endpoint(name), database) == [b"{}"]
    assert parse_address(name).schema == schema
