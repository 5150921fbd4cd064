"""One call of the program: its settings, its connections and its output streams."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property, partial
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rowpost.cli.exits import ExitCode, Refused
from rowpost.cli.interrupts import Interrupts, cancel_on_interrupt, defer_interrupts
from rowpost.cli.near_names import meant
from rowpost.cli.printing import json_text, table, visible
from rowpost.database.connection import Connection, connect
from rowpost.deploy.plan import business_settings
from rowpost.errors import InvalidQueueName, QueueNotFound, RowpostError, SettingsError
from rowpost.operations.figures import registered_queues
from rowpost.operations.log import Operator
from rowpost.operations.operation import Result
from rowpost.outbox.declaration import named
from rowpost.settings.environment import OutboxSettings, Settings, load_settings
from rowpost.transport.queue import Queue

__all__ = ["OPERATOR", "PRODUCTION", "Session", "console"]

#: who acts, for the record: the database adds the login
OPERATOR = Operator("command line")
#: the name of the environment in which nothing is made or changed without being asked
PRODUCTION = "production"
#: columns of output that is not a terminal, so that lines are never wrapped
UNLIMITED_WIDTH = 100_000


class _Console(Console):
    """A console that shows control characters of texts instead of obeying them.

    It raises BrokenPipeError if its reader closes the pipe. Rich's own console ends the program.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(visible(each) if isinstance(each, str) else each for each in objects), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _cancel(database: Connection) -> None:
    """Cancel the connection's running statement, if the driver can."""
    cancel = getattr(database.driver_connection, "cancel", None)
    if cancel is not None:
        with suppress(database.dialect.driver_error()):
            cancel()


def _cell(value: object) -> object:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f} ms" if isinstance(value, float) else value


def console(stream: Any) -> Console:
    """Make a console that prints text without interpreting markup, because names and messages may look like markup."""
    width = None if stream.isatty() else UNLIMITED_WIDTH
    return _Console(file=stream, markup=False, highlight=False, emoji=False, width=width)


class Session:
    """One call of the program. Results are printed to `out` (stdout), everything else to `err` (stderr)."""

    def __init__(self, environment: str | None = None, as_json: bool = False) -> None:
        self.environment = environment
        self.as_json = as_json
        #: the outbox whose business database this session uses; None for the database of the queues
        self.outbox: str | None = None
        #: the environment's settings, which name the endpoints
        self.whole: Settings | None = None
        #: whether the command connects to nothing, so that it needs no secrets; set it before the settings are read
        self.offline = False
        self._typed: set[str] = set()
        self.out = console(sys.stdout)
        self.err = console(sys.stderr)

    @cached_property
    def settings(self) -> Settings:
        """The environment's settings. Raises SettingsError."""
        return load_settings(self.environment, offline=self.offline)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Open a connection to the environment's database. Raises DatabaseUnavailable, LoginRefused."""
        with (
            nullcontext() if self.outbox is None else named(self.outbox),
            connect(self.settings, application_name="rowpost command line") as database,
            cancel_on_interrupt(partial(_cancel, database)),
        ):
            yield database

    @contextmanager
    def deployed(self) -> Iterator[Connection]:
        """Open a connection and check that rowpost is deployed. Also raises SchemaMissing and SchemaTooNew."""
        with self.connected() as database:
            database.check_schema()
            try:
                yield database
            except QueueNotFound as error:
                raise QueueNotFound(self._missing(database, str(error))) from error

    def _missing(self, database: Connection, said: str) -> str:
        """Return what is said of a queue that is not found: with the one that the user may have meant, without how to
        make a second one.

        Return it unchanged if no queue is like it, or if the login may not list them.
        """
        with suppress(RowpostError):
            database.rollback()
            known = {row.queue_name for row in registered_queues(database)}
            for name in self._typed - known:
                if repr(name) in said and (question := meant(name, known)):
                    return f"No queue named {name!r} is in this database. {question}"
        return said

    def databases(self, outbox: str | None = None) -> list[Session]:
        """Return sessions for the database of the queues and for each outbox's business database.

        If `outbox` is given, return only the session of that business database. Raises SettingsError if it is unknown.
        """
        known = self.settings.outboxes
        if outbox is not None and outbox not in {each.name for each in known}:
            names = ", ".join(each.name for each in known) or "none"
            raise SettingsError(
                f"The environment {self.settings.environment} has no outbox {outbox!r}; it has: {names}."
            )
        found = [self._session_of(each) for each in known if outbox in (None, each.name)]
        return found if outbox is not None else [self, *found]

    def _session_of(self, outbox: OutboxSettings) -> Session:
        session = Session(self.environment, self.as_json)
        session.out, session.err = self.out, self.err
        session.outbox, session.settings = outbox.name, business_settings(self.settings, outbox)
        session.whole = self.settings
        return session

    def name(self, text: str) -> str:
        """Return the canonical name of a queue that the user typed, in the environment's default schema.

        Raises InvalidQueueName.
        """
        name = self.settings.naming.canonical(self.text(text))
        self._typed.add(name)
        return name

    def stream_name(self, text: str) -> str:
        """Return the same in the form that the options of Spark's data source take: there too, a name without a schema
        has the default one.
        """
        return self.settings.naming.explicit(self.name(text))

    def text(self, name: str) -> str:
        """Return a name that the user typed. Raises InvalidQueueName if it contains bytes that are not UTF-8."""
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidQueueName(f"The name {name!r} contains bytes that are not UTF-8. Use another name.") from None
        return name

    def queue(self, text: str, database: Connection) -> Queue:
        """Return the queue that the user typed. Raises InvalidQueueName."""
        return Queue(self.name(text), database)

    @contextmanager
    def unit(self, database: Connection) -> Iterator[Interrupts]:
        """Run the block in a transaction. Ctrl-C rolls it back; during the commit, Ctrl-C is deferred.

        A caller that continues after the block calls `check()` of the yielded value, which raises a deferred Ctrl-C.
        """
        interrupts = Interrupts()
        database.begin()
        try:
            yield interrupts
            with defer_interrupts(interrupts):
                database.commit()
        except BaseException:
            # a lost connection or a cancelled call has already rolled back
            with suppress(RowpostError):
                database.rollback()
            raise

    def document(self, value: Any) -> None:
        """Print a JSON document on one line of stdout."""
        stream: Any = self.out.file
        encoding = stream.encoding or "utf-8"  # a StringIO has none, and takes every character
        stream.write(json_text(value, ascii_only=encoding.lower() != "utf-8") + "\n")
        stream.flush()

    def result(self, result: Result) -> None:
        """Print what an operation did: its document with --json, else its sentence."""
        self.answer(result, result.sentence)

    def answer(self, document: Any, sentence: str, *, on_stdout: bool = False) -> None:
        """Print the document on stdout with --json, else the sentence to stderr, or on stdout too."""
        if self.as_json:
            self.document(document)
        elif on_stdout:
            self.out.print(sentence)
        else:
            self.note(sentence)

    def listing(
        self,
        document: Any,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        right: Sequence[str] = (),
        none: str,
        instead: bool = False,
    ) -> None:
        """Print the document on stdout with --json, else the rows as a table.

        If there are no rows, `none` follows the table's head on stderr, or with `instead` takes its place on stdout.
        """
        if self.as_json:
            self.document(document)
        elif instead and not rows:
            self.out.print(none)
        else:
            table(self.out, columns, rows, right)
            if not rows:
                self.note(none)

    def rows(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table, but not with --json.

        Whole numbers, and times in milliseconds, which are floats, are aligned to the right.
        """
        if not self.as_json:
            cells = list(rows)
            numbers = [
                name for place, name in enumerate(names) if any(isinstance(row[place], int | float) for row in cells)
            ]
            table(self.out, names, [list(map(_cell, row)) for row in cells], right=numbers)

    def counts(self, values: Mapping[str, object], **details: object) -> None:
        """Print the last line on stdout: one JSON document. The details are in it with --json."""
        self.document(json.loads(json.dumps({**values, **(details if self.as_json else {})}, default=str)))

    def note(self, text: str) -> None:
        """Print a text that is not part of the result to stderr."""
        self.err.print(text, soft_wrap=True)

    def remark(self, text: str) -> None:
        """Print a text to stderr, but not with --json."""
        if not self.as_json:
            self.note(text)

    def counter(self, words: str) -> Callable[[int, int], None]:
        """Return a progress callback that prints a line on a terminal when the text changes."""
        said: list[str] = []

        def show(done: int, of: int) -> None:
            text = words.format(done=f"{done:,}", of=f"{of:,}")
            if self.err.is_terminal and said[-1:] != [text]:
                said.append(text)
                self.note(text)

        return show

    def confirm(self, question: str, yes: bool) -> None:
        """Ask before an action that cannot be undone. Without a terminal, `yes` is required. Raises Refused."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused(f"{question} This is not a terminal, so rowpost cannot ask: pass --yes.", ExitCode.USAGE)
        if not typer.confirm(visible(question), err=True):
            raise Refused("Nothing was changed.")

    def progress(self) -> Progress:
        """Return a progress bar on stderr. It is disabled if stderr is not a terminal."""
        return Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.err,
            transient=True,
            disable=not self.err.is_terminal,
        )
