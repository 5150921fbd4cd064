"""What a server, a database, a role or PGOPTIONS may set for a session, and a message's way under each of these settings.

`values_of` says which values of a setting are tried: the other values of a boolean and of an enumeration, the least and the greatest of
a number, and what `VALUES` names. `LEFT_OUT` names the settings that are not tried, each with its reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from rowpost.database.connection import Connection, connect_url
from rowpost.database.dialects.postgresql.session import SETTINGS
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.deploy.verify import verify
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import RowpostError
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.environment import QueueSettings, Settings
from rowpost.transport.error_queue import ErrorQueue
from rowpost.wire.message_types import message_type
from tests.support.sagas import Add, Open, make_ledger

__all__ = ["LEFT_OUT", "OWN", "REFUSED", "VALUES", "Journey", "Setting", "read_settings", "values_of"]

#: the values of settings whose values the server does not list, or whose bounds would end the session and not try anything
VALUES: dict[str, tuple[str, ...]] = {
    "DateStyle": ("German, DMY", "SQL, DMY", "Postgres, MDY"),
    "TimeZone": ("Asia/Kathmandu", "<+03>-03"),
    "application_name": ("another",),
    "backtrace_functions": ("errfinish",),
    "client_encoding": ("LATIN1", "SQL_ASCII", "EUC_JP"),
    "createrole_self_grant": ("set, inherit",),
    "default_table_access_method": ("heap",),
    "default_tablespace": ("pg_default",),
    "default_toast_compression": ("pglz",),  # the only one of a server without LZ4
    "default_text_search_config": ("pg_catalog.german",),
    "dynamic_library_path": ("/nowhere:$libdir",),
    "extension_control_path": ("/nowhere:$system",),
    "idle_session_timeout": ("1ms",),
    "lc_messages": ("POSIX",),
    "lc_monetary": ("POSIX",),
    "lc_numeric": ("POSIX",),
    "lc_time": ("POSIX",),
    "log_connections": ("on",),
    "max_stack_depth": ("100kB",),
    "plpgsql.extra_errors": ("all",),
    "plpgsql.extra_warnings": ("all",),
    "restrict_nonsystem_relation_kind": ("view, foreign-table",),
    "search_path": ("", "nowhere", "decoy, pg_catalog"),
    "temp_buffers": ("100",),
    "temp_file_limit": ("0",),
    "temp_tablespaces": ("pg_default",),
    "timezone_abbreviations": ("India",),
    "wal_consistency_checking": ("all",),
    # shorter times end a handler's transaction, as they are meant to
    "idle_in_transaction_session_timeout": ("20s",),
    "lock_timeout": ("20s",),
    "statement_timeout": ("20s",),
    "transaction_timeout": ("20s",),
}
LEFT_OUT = {
    "debug_discard_caches": "has another value only on a server that was compiled for developers, where each statement takes seconds",
    "local_preload_libraries": "the server refuses each login if a library does not exist, and what a library does is its own",
    "post_auth_delay": "lets each login wait for a debugger",
    "session_preload_libraries": "as local_preload_libraries",
    "transaction_deferrable": "belongs to one transaction: BEGIN sets it to default_transaction_deferrable, which is tried",
    "transaction_isolation": "belongs to one transaction: BEGIN sets it to default_transaction_isolation, which is tried",
    "transaction_read_only": "belongs to one transaction: BEGIN sets it to default_transaction_read_only, which is tried",
}
#: what a value is refused with; nothing is lost, and nothing is handled
REFUSED = {"default_transaction_read_only": "The server is read-only"}
#: what rowpost sets on its own connections: a handler does not see the login's value
OWN = {name.lower() for name in SETTINGS} | {"application_name", "client_encoding", "datestyle"}
_SETTABLE = """
SELECT s.name, s.vartype, s.setting, s.min_val, s.max_val, s.enumvals
FROM pg_settings AS s
WHERE s.context IN ('user', 'superuser', 'backend', 'superuser-backend')
ORDER BY s.name
"""
_BUSINESS = """
CREATE TABLE business (number integer NOT NULL);
CREATE SCHEMA decoy;
CREATE FUNCTION decoy.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
"""
#: bytes on a connection in SQL_ASCII, which are compared as well
_OF_SESSION = "SELECT md5(string_agg(s.name || '=' || s.setting, ' ' ORDER BY s.name)) FROM pg_settings AS s"
_DEADLINE_S = 20.0
NAME = "Müller ☃"


@dataclass(frozen=True)
class Setting:
    """A setting of a server, as pg_settings has it."""

    name: str
    kind: str
    value: str
    least: str | None
    greatest: str | None
    choices: Sequence[str] | None


def read_settings(connection: psycopg.Connection) -> list[Setting]:
    """Return all settings that a role, a database or PGOPTIONS may set on this server."""
    connection.execute("DO $$ BEGIN END $$")  # loads PL/pgSQL, which has settings of its own
    return [Setting(*row) for row in connection.execute(_SETTABLE).fetchall()]


def values_of(setting: Setting) -> Sequence[str]:
    """Return the values to try. Raises KeyError if nothing says which values the setting has."""
    if setting.name in LEFT_OUT:
        return ()
    if setting.name in VALUES:
        return VALUES[setting.name]
    if setting.kind == "bool":
        return ("off" if setting.value == "on" else "on",)
    if setting.kind == "enum":
        return tuple(each for each in setting.choices or () if each != setting.value)
    if setting.kind in ("integer", "real"):
        return tuple(str(each) for each in (setting.least, setting.greatest) if each != setting.value)
    raise KeyError(setting.name)


@message_type("Shop.Messages.Travel")
@dataclass(frozen=True)
class Travel:
    number: int
    wish: str
    name: str = NAME


class Journey:
    """A database with the queue Sales, a saga, and an endpoint; `travel` sends messages through it.

    Args:
        url: of an empty database whose login is a superuser.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._endpoint = self._make_endpoint()
        queues = (QueueSettings("Sales", delayed=True), *map(QueueSettings, ("Billing", "audit", "error")))
        settings = Settings(engine="postgresql", url=url, default_schema="public", queues=queues)
        self._plan = plan(replace(settings, sagas=self._endpoint.sagas))
        with connect_url("postgresql", url) as database:
            apply(database, self._plan)
        self.admin = psycopg.connect(url, autocommit=True, client_encoding="UTF8")
        self.admin.execute(_BUSINESS)
        (self._deployed_at,) = self.admin.execute("SELECT max(applied_at) FROM rowpost.version").fetchone()
        self._name, self._seen, self._calls, self._hopeless = "", set(), Counter(), True

    def close(self) -> None:
        self._endpoint.close()
        self.admin.close()

    def _make_endpoint(self) -> Endpoint:
        recoverability = Recoverability(
            immediate_retries=1, delayed_retries=1, delay_increase=timedelta(milliseconds=1)
        )
        endpoint = Endpoint("Sales", recoverability=recoverability)

        @endpoint.handles("Shop.Messages.Travel", Travel)
        def handle(message, context):
            if self._name:
                self._seen |= set(
                    context.connection.execute("SELECT pg_catalog.current_setting(%s)", (self._name,)).fetchone()
                )
            self._calls[message.wish] += 1
            context.connection.execute("INSERT INTO public.business VALUES (%s)", (message.number,))
            context.send(
                b"{}",
                to="Billing",
                headers={"Shop.Name": message.name, "NServiceBus.EnclosedMessageTypes": "Shop.Noted"},
            )
            if (message.wish == "retried" and self._calls["retried"] == 1) or (
                message.wish == "fails" and self._hopeless
            ):
                raise ValueError(message.wish)

        endpoint.saga(make_ledger("pessimistic", "Ledger_settings"))
        return endpoint

    def under(self, name: str, value: str) -> list[str]:
        """Set a setting for the database, and return what is wrong on the way of messages then, in sentences."""
        with self._set(name, value):
            wrong = self.travel(name)
            if not wrong and name.lower() not in OWN:
                wrong = list(self._differs("seen by handlers", self._seen, {self._of_a_login(name)}))
        if name in REFUSED:
            wrong = [] if len(wrong) == 1 and REFUSED[name] in wrong[0] else [f"not refused: {wrong}"]
        return [f"{name} = {value!r}: {each}" for each in wrong]

    @contextmanager
    def _set(self, name: str, value: str) -> Iterator[None]:
        """Set it for new sessions of the database; by PGOPTIONS if a database cannot have it."""
        database = sql.Identifier(self.admin.info.dbname)
        setting = sql.SQL(".").join(map(sql.Identifier, name.split(".")))
        names = name == "search_path" and value  # a list of names, not one text
        try:
            self.admin.execute(
                sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, setting, sql.SQL(value) if names else value)
            )
        except psycopg.errors.CantChangeRuntimeParam:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PGOPTIONS", f"-c {name}={value}")
                yield
            return
        try:
            yield
        finally:
            self.admin.execute(sql.SQL("ALTER DATABASE {} RESET {}").format(database, setting))

    def _of_a_login(self, name: str) -> str:
        """What a setting is on a connection of somebody else."""
        with psycopg.connect(self._url, autocommit=True) as plain:
            return plain.execute("SELECT pg_catalog.current_setting(%s)", (name,)).fetchone()[0]

    def travel(self, name: str = "") -> list[str]:
        """Send messages over new connections: one is handled, one is retried, one waits, one fails, and a saga. Return what is wrong."""
        self._name, self._seen, self._calls, self._hopeless = name, set(), Counter(), True
        for table in ('"Sales"', '"Sales.Delayed"', '"Billing"', "audit", "error", "business", "rowpost.failure"):
            self.admin.execute(f"DELETE FROM {table}")
        self.admin.execute('DELETE FROM "Ledger_settings"')
        try:
            with closing(connect_url("postgresql", self._url, "rowpost tests")) as database:
                return list(self._wrong(database))
        except (RowpostError, psycopg.Error, AssertionError) as error:
            return [f"{type(error).__name__}: {error}"]

    def _wrong(self, database: Connection) -> Iterator[str]:
        if self._name == "idle_session_timeout":  # it ends a lent connection, as it should
            self._send_lent(self.admin)
        else:
            yield from self._lend()
        with self._endpoint.open(database) as bus:
            bus.send(Travel(1, "fails"), to="Sales")
            bus.send(Travel(2, "handled"), to="Sales")
            bus.send(Travel(3, "retried"), to="Sales")
            bus.send(Travel(4, "delayed"), to="Sales", delay=timedelta(milliseconds=1))
            bus.send(Open("A", 7), to="Sales")
            bus.send(Add("A", 4), to="Sales")
        self._handle(database)
        yield from self._differs(
            "calls of handlers", dict(self._calls), {"fails": 4, "handled": 1, "retried": 2, "delayed": 1, "lent": 1}
        )
        yield from self._differs(
            "rows of handlers", self._column("SELECT number FROM business ORDER BY 1"), [2, 3, 4, 5]
        )
        yield from self._differs(
            "error queue", self._column("SELECT convert_from(body, 'UTF8')::json ->> 'Name' FROM error"), [NAME]
        )
        yield from self._differs(
            "sent by handlers", self._column("SELECT headers::json ->> 'Shop.Name' FROM \"Billing\""), [NAME] * 4
        )
        yield from self._differs(
            "saga", [row[1] for row in database.call("list_sagas", "Ledger_settings", count=9)], ["A"]
        )
        yield from self._differs("notes of the saga", self._column("SELECT count(*) FROM audit"), [2])
        self._hopeless = False
        yield from self._differs("retried by an operator", ErrorQueue(database).retry_all().done, 1)
        self._handle(database)
        yield from self._differs(
            "rows after that", self._column("SELECT number FROM business ORDER BY 1"), [1, 2, 3, 4, 5]
        )
        yield from self._differs("deployed at", database.call("get_version")[0].applied_at, self._deployed_at)
        yield from self._differs(
            "verify", [each.detail for each in verify(database, self._plan) if not each.remark], []
        )

    def _lend(self) -> Iterator[str]:
        """Send on a connection of the caller's own, which keeps its settings, or refuses the message in a sentence."""
        with psycopg.connect(self._url, autocommit=True) as lent:
            encoding = lent.info.parameter_status("client_encoding")
            lent.execute("DO $$ BEGIN END $$")
            before, told = lent.execute(_OF_SESSION).fetchone(), ""
            try:
                self._send_lent(lent)
            except RowpostError as error:
                told = str(error)
            if lent.execute(_OF_SESSION).fetchone() != before:
                yield "a lent connection lost a setting"
        if encoding == "UTF8" and told:
            yield f"a lent connection is refused: {told}"
        if encoding != "UTF8":
            yield from self._differs(
                "refused", (f"client_encoding {encoding}" in told, self._column('SELECT 1 FROM "Sales"')), (True, [])
            )
            self._send_lent(self.admin)

    def _send_lent(self, connection: psycopg.Connection) -> None:
        with self._endpoint.open(connection) as bus:
            bus.send(Travel(5, "lent"), to="Sales")

    def _handle(self, database: Connection) -> None:
        """Handle messages until none is left, delayed ones included."""
        end = time.monotonic() + _DEADLINE_S
        while self._endpoint.process_one(database).kind is not Kind.EMPTY or self._column(
            'SELECT 1 FROM "Sales.Delayed"'
        ):
            assert time.monotonic() < end, f"messages are left: {dict(self._calls)}"

    def _column(self, query: str) -> list:
        return [value for (value,) in self.admin.execute(query).fetchall()]

    @staticmethod
    def _differs(what: str, found: object, wanted: object) -> Iterator[str]:
        if found != wanted:
            yield f"{what}: {found!r} instead of {wanted!r}"
