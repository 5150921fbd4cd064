"""What one call of the program works with: its settings, its database, where it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property, partial
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.interrupts import Interrupts, cancel_on_interrupt, hold_interrupts
from rowpost.database.connection import Connection, connect
from rowpost.deploy.plan import business_settings
from rowpost.errors import InvalidQueueName, RowpostError, SettingsError
from rowpost.outbox.operations import named
from rowpost.settings.environment import OutboxSettings, Settings, load_settings
from rowpost.transport.queue import Queue
from rowpost.wire.address import Address, parse_address

__all__ = ["Session", "console"]

#: of lines that no terminal wraps
UNLIMITED_WIDTH = 100_000


class _Console(Console):
    """A console whose reader may leave; rich would end the program then."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _cancel(database: Connection) -> None:
    """Ends what the server does for this connection, if its driver can."""
    cancel = getattr(database.driver_connection, "cancel", None)
    if cancel is not None:
        with suppress(database.dialect.driver_error()):
            cancel()


def console(stream: Any) -> Console:
    """A console that takes text as it is: names and messages come from strangers, and may look like markup."""
    width = None if stream.isatty() else UNLIMITED_WIDTH
    return _Console(file=stream, markup=False, highlight=False, emoji=False, width=width)


class Session:
    """One call of the program. Results go to `out` (stdout), everything else to `err` (stderr)."""

    def __init__(self, environment: str | None = None, as_json: bool = False) -> None:
        self.environment = environment
        self.as_json = as_json
        #: the outbox whose business database this session works with; None for the queues'
        self.outbox: str | None = None
        self.out = console(sys.stdout)
        self.err = console(sys.stderr)

    @cached_property
    def settings(self) -> Settings:
        """The environment's. Raises SettingsError."""
        return load_settings(self.environment)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """A connection to the environment's database. Raises DatabaseUnavailable, LoginRefused."""
        with (
            nullcontext() if self.outbox is None else named(self.outbox),
            connect(self.settings, application_name="rowpost command line") as database,
            cancel_on_interrupt(partial(_cancel, database)),
        ):
            yield database

    @contextmanager
    def deployed(self) -> Iterator[Connection]:
        """The same, where rowpost is deployed. Raises SchemaMissing and SchemaTooNew besides."""
        with self.connected() as database:
            database.check_schema()
            yield database

    def databases(self, outbox: str | None = None) -> list[Session]:
        """Sessions of all databases of the environment: the queues', and each outbox's; only the one that is named.

        Raises SettingsError when no outbox is named so.
        """
        known = self.settings.outboxes
        if outbox is not None and outbox not in {each.name for each in known}:
            names = ", ".join(each.name for each in known) or "none"
            raise SettingsError(f"The environment {self.settings.environment} has no outbox {outbox!r}; it has: {names}.")
        found = [self._of(each) for each in known if outbox in (None, each.name)]
        return found if outbox is not None else [self, *found]

    def _of(self, outbox: OutboxSettings) -> Session:
        session = Session(self.environment, self.as_json)
        session.outbox, session.settings = outbox.name, business_settings(self.settings, outbox)
        return session

    def name(self, text: str) -> str:
        """The canonical name of the queue that somebody typed, in the environment's default schema.

        Raises InvalidQueueName.
        """
        engine = self.settings.engine
        address = parse_address(self.text(text))
        full = Address(address.table, address.schema or self.settings.default_schema, address.catalog)
        return full.qualified(engine).short(engine).format()

    def text(self, name: str) -> str:
        """What somebody typed, made sure that it is text: a terminal passes any bytes. Raises InvalidQueueName."""
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidQueueName(f"The name {name!r} holds bytes that are no UTF-8. Choose another one.") from None
        return name

    def queue(self, text: str, database: Connection) -> Queue:
        """The queue that somebody typed. Raises InvalidQueueName."""
        return Queue(self.name(text), database)

    @contextmanager
    def unit(self, database: Connection) -> Iterator[Interrupts]:
        """A transaction that Ctrl-C undoes as a whole, or comes too late for: the commit is never interrupted.

        Whoever goes on after the block asks what it yields whether to: `check()`.
        """
        interrupts = Interrupts()
        database.begin()
        try:
            yield interrupts
            with hold_interrupts(interrupts):
                database.commit()
        except BaseException:
            with suppress(
                RowpostError
            ):  # a connection that is lost, or a call that was just cancelled, has rolled back
                database.rollback()
            raise

    def document(self, value: Any) -> None:
        """Print one JSON document, or one of the lines, to stdout."""
        sys.stdout.write(json.dumps(value, ensure_ascii=sys.stdout.encoding.lower() != "utf-8", default=str) + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Say something beside the result."""
        self.err.print(text, soft_wrap=True)

    def confirm(self, question: str, yes: bool) -> None:
        """Ask before something that cannot be undone; without a terminal only --yes will do. Raises Refused."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused(f"{question} Nobody is there to ask: say --yes.", ExitCode.USAGE)
        if not typer.confirm(question, err=True):
            raise Refused("Nothing was changed.")

    def progress(self) -> Progress:
        """A bar on a terminal's stderr; nothing where nobody looks."""
        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.err,
            transient=True,
            disable=not self.err.is_terminal,
        )
