"""Endpoints whose names, schemas or databases have characters that addresses and SQL use for themselves."""

import re
from dataclasses import replace
from urllib.parse import quote

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
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


@pytest.fixture
def odd_database(target, not_on_babelfish):
    """A connection to a database with blanks and other characters in its name, with the queues of the target."""
    not_on_babelfish("does not find the sequences of a database whose name has a dot")
    name = "n service.bus&#"
    with target.connect() as admin:
        quoted = admin.dialect.quote(name)
        admin.driver_connection.execute(f"CREATE DATABASE {quoted}")
        if admin.engine == "postgresql":
            url = re.sub(r"(://[^/]*/)[^?]*", rf"\g<1>{quote(name)}", target.url)
        else:
            url = re.sub(r"(?i)database=[^;]*", f"Database={{{name}}}", target.url)
        with connect_url(admin.engine, url, "rowpost tests") as database:
            apply(database, plan(replace(target.settings, url=url, default_schema=None)))
            yield database
        admin.driver_connection.execute(f"DROP DATABASE {quoted}")


@pytest.mark.engine_schema("has a database of its own, with the engine's own schema")
def test_an_endpoint_in_a_database_whose_name_has_special_characters_answers_itself(odd_database):
    sales, seen = Endpoint("Sales"), []
    sales.handles("Shop.Messages.Ping")(
        lambda body, context: context.reply(b"pong", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Pong"})
    )
    sales.handles("Shop.Messages.Pong")(lambda body, context: seen.append(body))
    with sales.open(odd_database) as bus:
        bus.send_local(b"{}", headers=PING)

    outcomes = [sales.process_one(odd_database).kind for _ in range(2)]

    assert (outcomes, seen) == ([Kind.HANDLED] * 2, [b"pong"])
