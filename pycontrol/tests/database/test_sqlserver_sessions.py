"""What is sent to SQL Server when a connection opens, and around a transaction whose session a handler had: the texts, without a server."""

from contextlib import suppress

import pytest

from rowpost.database.dialects.sqlserver.session import SESSION, decode_text
from rowpost.database.dialects.sqlserver.transactions import STATE, SessionState, clean, opening, restore
from rowpost.errors import DatabaseError

FIRST = SessionState(5496, "us_english", 7, "20030102", -1, "shop", "dbo")
XACT_ABORT = 16384


def test_a_distributed_transaction_keeps_the_option_that_linked_servers_want():
    text = opening("distributed", FIRST, reads_state=True)

    assert (
        text.index("SET XACT_ABORT OFF")
        < text.index(STATE)
        < text.index("SET XACT_ABORT ON")
        < text.index("BEGIN DISTRIBUTED")
    )
    assert restore(FIRST, FIRST._replace(options=FIRST.options | XACT_ABORT)) == ""


def test_a_session_that_had_the_option_first_keeps_it():
    assert "SET XACT_ABORT ON" in clean(FIRST._replace(options=FIRST.options | XACT_ABORT))


def test_what_differs_is_set_back_and_nothing_else():
    other = FIRST._replace(options=FIRST.options ^ 512, database="odd]name", user="guest")

    assert restore(FIRST, other) == f"REVERT; USE [shop]; SET NOCOUNT {'ON' if FIRST.options & 512 else 'OFF'};"
    assert restore(other, FIRST).startswith("REVERT; USE [odd]]name];")
    assert (
        restore(FIRST, FIRST._replace(order="20030201"))
        == "SET LANGUAGE N'us_english'; SET DATEFIRST 7; SET DATEFORMAT mdy;"
    )


#: bits of @@OPTIONS: what indexes on computed columns need, and what they must not meet
NEEDED, REFUSED = 8 | 16 | 32 | 64 | 256 | 4096, 2 | 8192


def test_a_connection_has_the_options_that_the_protocol_depends_on_whatever_the_server_says(target, database):
    if database.engine != "sqlserver":
        pytest.skip("PostgreSQL has other settings: test_session_settings.py")

    (options,) = database.driver_connection.execute("SELECT @@OPTIONS").fetchone()

    assert (options & NEEDED, options & REFUSED) == (NEEDED, 0)


def test_the_options_of_a_connection_are_set_in_one_batch_that_leaves_the_login_its_language():
    assert SESSION.count("GO") == 0
    assert [each for each in ("LANGUAGE", "DATEFORMAT", "DATEFIRST", "NOCOUNT", "XACT_ABORT") if each in SESSION] == []
    assert "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;" in SESSION


def test_half_of_a_surrogate_pair_is_read_as_the_replacement_character():
    assert decode_text("ü☃😀".encode("utf-16-le")) == "ü☃😀"
    assert decode_text(b"a\x00\x00\xd8b\x00") == "a\ufffdb"
    assert decode_text(None) is None


def test_a_row_with_damaged_text_does_not_stop_its_neighbours(queue, database, sql):
    if database.engine != "sqlserver":
        pytest.skip("PostgreSQL stores no such text")
    sql.run(
        f"INSERT INTO {sql.table(queue.name)} (Id, Recoverable, Headers, Body)"
        " VALUES (NEWID(), 1, N'{\"Shop.Name\":\"' + NCHAR(0xD800) + N'\"}', 0x31)"
    )
    queue.send(b"2")
    with suppress(DatabaseError), database.transaction():
        queue.receive(10)

    with database.transaction():
        found = queue.receive(10)

    assert sorted(message.body for message in found) == [b"1", b"2"]
