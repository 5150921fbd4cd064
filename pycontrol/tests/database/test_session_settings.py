"""The settings of a login do not reach the protocol, and what is the login's own reaches its handlers.

`tests.support.session_settings` has the way of a message, and every setting that a server has. `make test/faults` tries all of them,
this file those that did harm once or are set often.
"""

from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from rowpost.database.connection import Connection, connect_url
from rowpost.database.dialects.postgresql import session as postgresql_session
from rowpost.database.dialects.postgresql.session import SETTINGS, open_connection
from rowpost.database.requirements import check_server
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.verify import verify
from rowpost.errors import DatabaseError, InvalidMessage, UnsupportedServer
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.queue import Queue
from tests.support.pipelines import pipeline_with
from tests.support.session_settings import LEFT_OUT, VALUES, Journey, read_settings, values_of
from tests.support.wake_up import postgresql_only

__all__ = ["postgresql_only"]

#: each with one of its values
SAMPLE = [
    ("client_encoding", "LATIN1"),
    ("client_encoding", "SQL_ASCII"),
    ("default_transaction_isolation", "repeatable read"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_read_only", "on"),
    ("DateStyle", "German, DMY"),
    ("TimeZone", "Asia/Kathmandu"),
    ("IntervalStyle", "iso_8601"),
    ("bytea_output", "escape"),
    ("standard_conforming_strings", "off"),
    ("quote_all_identifiers", "on"),
    ("idle_session_timeout", "1ms"),
    ("search_path", "decoy, pg_catalog"),
    ("session_replication_role", "replica"),
    ("exit_on_error", "on"),
    ("array_nulls", "off"),
    ("work_mem", "64"),
]
UTF8, LATIN1 = ("client_encoding", "UTF8"), "LATIN1"


@pytest.fixture(scope="module")
def journey(make_database):
    url, drop = make_database("embedded")
    with closing(Journey(url)) as made:
        yield made
    drop()


@pytest.fixture
def url(postgresql_only, target):
    return target.url


def settings_of(connection: psycopg.Connection, *names: str) -> dict[str, str]:
    return {name: connection.execute("SELECT current_setting(%s)", (name,)).fetchone()[0] for name in names}


def with_options(url: str, options: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options={options}"


@pytest.mark.parametrize(("name", "value"), SAMPLE)
@pytest.mark.promise("login-settings-decide-nothing")
def test_messages_are_sent_retried_delayed_moved_and_verified_under_a_setting_of_the_database(journey, name, value):
    assert journey.under(name, value) == []


def test_every_setting_of_this_server_is_tried_or_left_out_for_a_reason(journey):
    settings = read_settings(journey.admin)

    values = {setting.name: values_of(setting) for setting in settings}
    assert len(values) > 150
    assert {name for name, tried in values.items() if not tried} <= LEFT_OUT.keys()
    assert not LEFT_OUT.keys() & VALUES.keys()


def test_a_way_that_is_not_as_it_should_be_is_found(journey, monkeypatch):
    monkeypatch.delitem(postgresql_session.SETTINGS, "quote_all_identifiers")

    assert any("verify" in each for each in journey.under("quote_all_identifiers", "on"))


@pytest.mark.promise("login-settings-decide-nothing")
def test_a_role_that_has_settings_gets_the_protocols_and_keeps_its_own(url, sql):
    sql.run("CREATE ROLE rowpost_settings LOGIN SUPERUSER")
    sql.run("ALTER ROLE rowpost_settings SET client_encoding = 'LATIN1'")
    sql.run("ALTER ROLE rowpost_settings SET default_transaction_isolation = 'serializable'")
    sql.run("ALTER ROLE rowpost_settings SET DateStyle = 'SQL, DMY'")
    sql.run("ALTER ROLE rowpost_settings SET statement_timeout = '77s'")
    try:
        with closing(open_connection(make_conninfo(url, user="rowpost_settings"), "rowpost tests")) as connection:
            found = settings_of(
                connection, "client_encoding", "default_transaction_isolation", "DateStyle", "statement_timeout"
            )
    finally:
        sql.run("DROP ROLE rowpost_settings")

    assert found == {
        "client_encoding": "UTF8",
        "default_transaction_isolation": "read committed",
        "DateStyle": "ISO, DMY",  # the order of day and month is the role's
        "statement_timeout": "77s",
    }


@pytest.mark.parametrize("way", ["url", "PGOPTIONS"])
def test_the_users_own_options_stay_apart_from_those_of_the_protocol(url, monkeypatch, way):
    theirs = "-c work_mem=7MB -c default_transaction_isolation=serializable"
    if way == "PGOPTIONS":
        monkeypatch.setenv("PGOPTIONS", theirs)
    else:
        url = with_options(url, theirs.replace(" ", "%20").replace("=", "%3D"))

    with closing(open_connection(url, "rowpost tests")) as connection:
        found = settings_of(connection, "work_mem", "default_transaction_isolation")

    assert found == {"work_mem": "7MB", "default_transaction_isolation": "read committed"}


def test_variables_of_the_environment_do_not_reach_the_protocol_not_even_after_a_handlers_settings(url, monkeypatch):
    for name, value in {"PGCLIENTENCODING": LATIN1, "PGTZ": "Asia/Kathmandu", "PGDATESTYLE": "German"}.items():
        monkeypatch.setenv(name, value)

    with closing(connect_url("postgresql", url)) as database:
        names = ("client_encoding", "TimeZone", "DateStyle")
        first = settings_of(database.driver_connection, *names)
        database.driver_connection.execute(
            "SET client_encoding = 'LATIN1'; SET TimeZone = 'Europe/Rome'; SET DateStyle = 'SQL'"
        )
        database.reset_session({"session"})
        again = settings_of(database.driver_connection, *names)

    assert first == {
        "client_encoding": "UTF8",
        "TimeZone": "UTC",
        "DateStyle": "ISO, DMY",
    }  # PGDATESTYLE has an order of its own
    assert again == first


def test_a_url_with_a_service_keeps_the_services_options_and_gets_the_protocols_settings(url, tmp_path, monkeypatch):
    file = tmp_path / "services.conf"
    file.write_text("[shop]\noptions=-c work_mem=7MB -c TimeZone=Asia/Kathmandu\n", encoding="utf-8")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    named = f"{url}{'&' if '?' in url else '?'}service=shop"

    with closing(connect_url("postgresql", named)) as database:
        first = settings_of(database.driver_connection, "work_mem", *SETTINGS)
        database.reset_session({"session"})
        again = settings_of(database.driver_connection, "work_mem", *SETTINGS)

    assert first == again == {"work_mem": "7MB"} | SETTINGS


@pytest.mark.promise("lent-connection-keeps-settings")
def test_a_lent_connection_in_another_encoding_is_refused_and_nothing_is_stored(url, queue):
    with (
        psycopg.connect(url, client_encoding=LATIN1) as lent,
        pytest.raises(DatabaseError, match=r"client_encoding LATIN1.*SET client_encoding"),
    ):
        Queue(queue.name, Connection.share(lent)).send("Müller".encode())

    assert queue.peek() == 0


@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
@pytest.mark.promise("lent-connection-keeps-settings")
def test_a_lent_connection_keeps_its_isolation_level_and_sends_in_its_transaction(url, queue, level):
    with psycopg.connect(url) as lent:
        lent.isolation_level = level
        Queue(queue.name, Connection.share(lent)).send(b"1")
        (found,) = lent.execute("SHOW transaction_isolation").fetchone()
        before = queue.peek()
        lent.commit()

    assert found == level.name.lower().replace("_", " ")
    assert (before, queue.peek()) == (0, 1)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_in_another_encoding_is_refused_before_anything_is_deployed_and_by_the_doctor(url, sql, encoding):
    name = f"rowpost_{encoding.lower()}"
    sql.run(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    settings = Settings(
        engine="postgresql",
        url=url.replace(sql.database.driver_connection.info.dbname, name),
        queues=(QueueSettings("Büro"),),
    )
    try:
        with connect_url("postgresql", settings.url) as database:
            with pytest.raises(UnsupportedServer, match=f"{name}.*{encoding}.*CREATE DATABASE"):
                apply(database, plan(settings))
            with pytest.raises(UnsupportedServer, match=encoding):
                verify(database, plan(settings))
            left = database.driver_connection.execute("SELECT to_regnamespace('rowpost')").fetchone()
        checks = {check.name: check.state for check in check_server(settings)}
    finally:
        sql.run(f"DROP DATABASE {name}")

    assert left == (None,)
    assert checks["encoding"] == "bad"


@pytest.fixture
def labelled(url, sql):
    """Return the url of a database with deployed queues, and what labels it with another encoding, which no statement can."""
    name, admin = "rowpost_labelled", sql.database.driver_connection
    sql.run(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")

    def label(encoding):
        admin.execute("UPDATE pg_database SET encoding = pg_char_to_encoding(%s) WHERE datname = %s", (encoding, name))

    label("UTF8")
    changed = url.replace(admin.info.dbname, name)
    with connect_url("postgresql", changed) as database:
        apply(
            database,
            plan(Settings(engine="postgresql", url=changed, queues=(QueueSettings("Sales"), QueueSettings("error")))),
        )
    yield changed, label
    sql.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("encoding", "stored"), [("SQL_ASCII", b"M\xfcller"), ("UTF8", b"M\xfcller"), ("WIN1252", b"M\xfcller\x81")]
)
@pytest.mark.parametrize("batch", [False, True])
def test_a_row_that_is_no_text_moves_to_the_error_queue_and_its_neighbours_are_handled(
    labelled, encoding, stored, batch
):
    url, label = labelled
    label("SQL_ASCII")
    with psycopg.connect(url, client_encoding="SQL_ASCII", autocommit=True) as connection:
        for body, name in (
            (b"before", b"\xfc" if encoding == "WIN1252" else "ü".encode()),
            (b"bad", stored),
            (b"after", b"plain"),
        ):
            values = "gen_random_uuid(), '{{\"Shop.Name\":\"{}\"}}', '{}'".format(name.decode("latin-1"), body.decode())
            connection.pgconn.exec_(f'INSERT INTO "Sales" (id, headers, body) VALUES ({values})'.encode("latin-1"))
    label(encoding)
    handled = []

    with connect_url("postgresql", url) as database:
        limits = database.dialect.encoding_limits(database.driver_connection)
        browsed = Queue("Sales", database).browse(10)
        pipeline = pipeline_with(
            database, "Sales", lambda message, _: handled.append((message.body, message.headers["Shop.Name"]))
        )
        batches = Batches(pipeline, BatchSize(10, None, now=10 if batch else 1))
        for _ in range(8):
            batches.process()
        left, (moved,) = Queue("Sales", database).peek(), Queue("error", database).browse(10)
        session = settings_of(database.driver_connection, "client_encoding")

    assert [message.body for message in browsed] == [b"before", b"bad", b"after"]
    assert (handled, left) == ([(b"before", "ü"), (b"after", "plain")], 0)
    assert (moved.body, moved.raw_headers) == (
        b"bad",
        '{"Shop.Name":"' + (r"Müller\x81" if encoding == "WIN1252" else r"M\xfcller") + '"}',
    )
    assert [encoding in text and "CREATE DATABASE" in text for text in limits] == ([] if encoding == "UTF8" else [True])
    assert session == {"client_encoding": "UTF8"}


def test_a_message_that_another_encoding_cannot_store_is_refused_with_the_way_out(labelled):
    url, label = labelled
    label("LATIN1")

    with (
        connect_url("postgresql", url) as database,
        pytest.raises(InvalidMessage, match=r"LATIN1.*not encoded in UTF-8.*rowpost doctor"),
    ):
        Queue("Sales", database).send(b"x", {"Shop.Name": "☃"})


def test_a_server_that_is_too_old_for_the_settings_is_refused_by_its_version(url, monkeypatch):
    monkeypatch.setattr(postgresql_session, "_OLDEST", 99)
    monkeypatch.setitem(postgresql_session.SETTINGS, "no_such_setting", "1")
    monkeypatch.setattr(postgresql_session, "_ALL", "SET no_such_setting = 1")

    with pytest.raises(UnsupportedServer, match="rowpost needs PostgreSQL 99"):
        connect_url("postgresql", url)
