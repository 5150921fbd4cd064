"""One connection to a database, and the one way to call its procedures: by the contract's names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rowpost.database.contract import load_contract
from rowpost.database.dialects.choice import dialect_for, dialect_of
from rowpost.database.dialects.protocol import Begin, Commit, Dialect, Guard, Statement
from rowpost.database.sql_folder import schema_version
from rowpost.database.wrapped import driver_connection
from rowpost.errors import ContractError, DatabaseError, SchemaMissing, SchemaTooNew
from rowpost.settings.compat import compat_of
from rowpost.settings.password import with_its_password
from rowpost.version import __version__, is_served_by
from rowpost.wire.address import Address, parse_address, queue_key

if TYPE_CHECKING:
    from rowpost.settings.environment import Settings

__all__ = ["Connection", "connect", "connect_url", "database_url"]
REMEMBERED_ADDRESSES = 4096


class Connection:
    """A connection and its dialect. Not for several threads at once.

    Calls run in autocommit unless a transaction is open. rowpost neither commits nor closes a lent connection
    (`share`).

    >>> database.call("peek_queue", queue="Sales", count=100)
    [peek_queue_row(waiting=0)]
    """

    def __init__(
        self, connection: Any, dialect: Dialect, *,
        owned: bool = True, open_second: Callable[[], Connection] | None = None, legacy_columns: bool = False,
    ) -> None:  # fmt: skip
        #: whether CorrelationId and ReplyToAddress are filled, for endpoints of transport versions 1 to 6 (compat)
        self.legacy_columns = legacy_columns and dialect.name == "sqlserver"
        #: the driver's connection, for rowpost's own SQL: nothing is noted
        self.raw_connection = connection
        self._session = dialect.session(connection)
        #: whether anybody asked for the driver's connection, began or ended a transaction, since this was last set to
        #: False
        self.lent = False
        self.handed_out = not owned  #: whether somebody may use the driver's connection without being lent it
        #: lends the driver's connection while a handler runs; None at other times
        self.guard: Guard | None = None
        self.dialect = dialect
        self.engine = dialect.name  #: postgresql or sqlserver
        self._owned = owned
        self._open_second = open_second
        self._second: Connection | None = None
        self._depth = 0
        self._spelt: dict[tuple[str, Address], Any] = {}

    @classmethod
    def share(cls, connection: Any) -> Connection:
        """Wrap a caller's connection of psycopg or pyodbc, or what SQLAlchemy and Django wrap around it; what is called
        joins the caller's transaction.

        Raises:
            SettingsError: it is another object.
        """
        connection = driver_connection(connection)
        return cls(connection, dialect_of(connection), owned=False)

    @property
    def driver_connection(self) -> Any:
        """The driver's connection, for SQL that is not rowpost's.

        After it was asked for, its transaction may have ended.
        """
        self.lent = True
        if self.guard is not None:
            return self.guard.lend(self.raw_connection)
        self.handed_out = True
        return self.raw_connection

    @property
    def async_connection(self) -> Any:
        """The driver's connection for SQL on an event loop, as `driver_connection`: in the same session and
        transaction.

        While it is used, nothing else may be.
        """
        self.lent = True
        if self.guard is not None:
            return self.guard.lend_async(self.raw_connection)
        self.handed_out = True
        return self.dialect.asynchronous(self.raw_connection)

    def lend_mapped(self, *, types: Any = None, cursors: type[Any] | None = None, is_async: bool = False) -> Any:
        """Return another object for the session, to a handler that maps types in its own way. See `Guard.lend_mapped`.

        None: the engine's driver has none for an event loop, or no handler runs.
        """
        self.lent = True
        if self.guard is None:
            return None
        return self.guard.lend_mapped(self.raw_connection, types=types, cursors=cursors, is_async=is_async)

    def call(self, procedure: str, /, queue: str | None = None, *, begin: Begin = False, **arguments: Any) -> list[Any]:
        """Call a procedure of the contract; with `queue` the one that was rendered for that queue.

        Args:
            procedure: name in sql/contract.yml.
            queue: name or address of a queue, for procedures of scope "queue"; a saga's name for those of "saga".
            begin: open a transaction before it, in the same round trip where the engine can; the caller ends it.
            arguments: by the contract's names; those left out are null.

        Returns:
            Rows as named tuples with the contract's column names. Rows that hold bodies of messages are plain tuples,
            in the same order, because names would slow receiving down.

        Raises:
            ContractError: unknown procedure or argument.
            RowpostError: what the server said, as one of rowpost's errors.
        """
        statement = self._statement(procedure, queue, arguments)
        try:
            return self.dialect.execute(self._session, statement, arguments, begin)
        except self.dialect.driver_error() as error:
            if begin:
                self._abandon()
            raise self.dialect.translate(error, statement) from error

    def call_atomically(self, procedure: str, /, queue: str | None = None, **arguments: Any) -> list[Any]:
        """Call a procedure as `call` does; all its statements take effect or none.

        T-SQL commits each one outside of a transaction.
        """
        if self.engine == "postgresql" or self.join():
            return self.call(procedure, queue, **arguments)
        return self.call_all([(procedure, queue, arguments)], begin=True, commit=True)[0]

    def call_all(
        self, calls: Sequence[tuple[str, str | None, dict[str, Any]]], *, begin: Begin = False, commit: Commit = False
    ) -> list[list[Any]]:
        """Call several procedures in as few round trips as the engine can, and return the rows of each.

        Args:
            calls: (procedure, queue or None, arguments), as for `call`.
            begin: open a transaction before the first.
            commit: commit after the last; "commit_guarded" if it was begun so. When one fails nothing is committed, and
                the transaction is rolled back if `begin` opened it here; otherwise the caller does.
        """
        spelt = [(self._statement(name, queue, arguments), arguments) for name, queue, arguments in calls]
        try:
            return self.dialect.execute_all(self._session, spelt, begin, commit)
        except self.dialect.driver_error() as error:
            if begin:
                self._abandon()
            raise self.dialect.translate(error, _failed_statement(error, [each for each, _ in spelt])) from error

    def stream(
        self, procedure: str, /, queue: str, *, columns: Sequence[str], chunk_bytes: int, **arguments: Any
    ) -> Iterator[Any]:
        """Call a procedure whose rows do not fit into memory, and yield them in chunks of about so many bytes.

        A chunk is a list of tuples in the contract's order, or on PostgreSQL an Arrow batch of the columns asked for,
        which comes over a connection of its own. Arguments and errors as for `call`; an error can come in the middle.
        """
        self.lent, statement = True, self._statement(procedure, queue, arguments)
        try:
            yield from self.dialect.stream(self._session, statement, arguments, columns, chunk_bytes)
        except self.dialect.driver_error() as error:
            raise self.dialect.translate(error, statement) from error

    def _statement(self, procedure: str, queue: str | None, arguments: dict[str, Any]) -> Statement:
        statement = _spell(self.dialect, procedure, queue)
        if not arguments.keys() <= statement.known:
            wrong, known = (", ".join(sorted(names)) for names in (arguments.keys() - statement.known, statement.known))
            raise ContractError(f"{procedure} has no parameter {wrong}; it has {known or 'none'}.")
        return statement

    def begin(self) -> None:
        """Open a transaction."""
        self.lent = True
        with self.translated():
            self.dialect.begin(self.raw_connection)

    def commit(self) -> None:
        """Commit the open transaction."""
        self.lent = True
        with self.translated():
            self.dialect.commit(self.raw_connection)

    def rollback(self) -> None:
        """Roll the open transaction back, if there is one."""
        self.lent = True
        with self.translated():
            self.dialect.rollback(self.raw_connection)

    def _abandon(self) -> None:
        """Roll back after a failure. A connection that is lost has rolled back by itself."""
        with suppress(self.dialect.driver_error()):
            self.dialect.rollback(self.raw_connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run a block in a transaction: commit at its end, roll back if it raises an error.

        Within another transaction, use a savepoint.
        """
        if self._depth or self.join():
            with self._savepoint():
                yield self
            return
        self.begin()
        self._depth = 1
        try:
            yield self
        except BaseException:
            self._depth = 0
            self._abandon()
            raise
        self._depth = 0
        self.commit()

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        name = f"rowpost_{self._depth}"
        with self.translated():
            self.dialect.savepoint(self.raw_connection, name)
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            with suppress(self.dialect.driver_error()):
                self.dialect.rollback_to(self.raw_connection, name)
            raise
        self._depth -= 1
        with self.translated():
            self.dialect.release(self.raw_connection, name)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the driver's errors within a block into rowpost's."""
        try:
            yield
        except self.dialect.driver_error() as error:
            raise self.dialect.translate(error) from error

    def join(self) -> bool:
        """Return whether there is a transaction to join.

        Begins the one that the driver of a lent connection would begin.
        """
        with self.translated():
            return self.dialect.join(self.raw_connection) or self.dialect.in_transaction(self.raw_connection)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open on the connection, begun by anybody."""
        with self.translated():
            return self.dialect.in_transaction(self.raw_connection)

    @property
    def left_open(self) -> bool:
        """Whether a transaction is open, as far as the driver knows without asking the server."""
        return self.dialect.left_open(self.raw_connection) and not self.closed

    def is_intact(self, begin: Begin) -> bool:
        """Return whether the transaction that was begun so is still open and can be committed.

        Asks the server only if the driver does not know.
        """
        try:  # once per message: `translated` costs more than the question
            return self.dialect.is_intact(self._session, begin)
        except self.dialect.driver_error() as error:
            raise self.dialect.translate(error) from error

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or broken."""
        return self.dialect.is_closed(self.raw_connection)

    def listen(self) -> bool:
        """Start to receive notifications of senders to any queue of the database.

        Return False if the engine has none.
        """
        with self.translated():
            return self.dialect.listen(self.raw_connection)

    def reset_session(self, changed: Collection[str]) -> None:
        """Undo what a handler changed in the session (`Guard.changed`), now or with the next call.

        A transaction stays open.
        """
        with self.translated():
            if self._owned or self.engine != "sqlserver":  # there, the caller of `share` may have changed it
                self.dialect.reset_session(self._session, changed)

    def limit_lock_waits(self, milliseconds: int | None) -> None:
        """Let statements wait for a lock at most so long and then raise LockTimeout.

        None restores the login's setting.
        """
        with self.translated():
            self.dialect.limit_lock_waits(self.raw_connection, milliseconds)

    def heard(self) -> list[str]:
        """Return the keys of queues of which senders have notified since the last call, without waiting.

        Raises DatabaseUnavailable.
        """
        with self.translated():
            return self.dialect.heard(self.raw_connection)

    @property
    def open_second(self) -> Callable[[], Connection] | None:
        """Opens a second connection to the same database.

        None if rowpost cannot, because the caller shared the connection.
        """
        return self._open_second

    def second_connection(self) -> Connection:
        """Return a second connection to the same database, for work outside of this connection's transaction.

        It stays open.

        Raises DatabaseError: the caller shared the connection, and rowpost does not know how to open a second one.
        """
        if self._open_second is None:
            raise DatabaseError(
                "This operation needs a second connection, and rowpost cannot open one beside a shared one. Pass a "
                "Connection of connect() instead."
            )
        if self._second is None or self._second.closed:
            self._second = self._open_second()
        return self._second

    @contextmanager
    def aside(self) -> Iterator[Connection]:
        """Lend a connection for a block that works outside of this connection's transaction.

        Raises DatabaseError: as `second_connection`.
        """
        yield self.second_connection()

    def local(self, address: Address) -> Address:
        """Return an address as this database knows it: without its own catalog, and without the default schema."""
        found: Address = self._remembered("local", address, self._local)
        return found

    def _local(self, address: Address) -> Address:
        own = (
            address.catalog and address.catalog.casefold() == self.dialect.database_name(self.raw_connection).casefold()
        )
        return Address(address.table, address.schema, None if own else address.catalog).short(self.engine)

    def canonical(self, address: Address) -> str:
        """Return an address as endpoints elsewhere may use it: with schema and, on SQL Server, catalog."""
        found: str = self._remembered("canonical", address, self._canonical)
        return found

    def _canonical(self, address: Address) -> str:
        full = address.qualified(self.engine)
        if self.engine == "postgresql":
            return f"{self.dialect.quote(str(full.schema))}.{self.dialect.quote(full.table)}"
        return Address(
            full.table, full.schema, full.catalog or self.dialect.database_name(self.raw_connection)
        ).format()

    def _remembered(self, what: str, address: Address, spell: Callable[[Address], Any]) -> Any:
        """Return an address as `spell` writes it.

        Those that an endpoint sends to are few, and are looked at for each message.
        """
        found = self._spelt.get((what, address))
        if found is not None:
            return found
        if len(self._spelt) >= REMEMBERED_ADDRESSES:
            self._spelt.clear()
        return self._spelt.setdefault((what, address), spell(address))

    def cut(self) -> None:
        """End the session although another thread may be using it; the server rolls back."""
        self.dialect.cut(self.raw_connection)

    def close(self) -> None:
        """Close the connection, unless the caller shared it, and the second connection."""
        if self._second is not None:
            self._second.close()
        if self._owned:
            with suppress(self.dialect.driver_error()):
                self.raw_connection.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_schema(self) -> None:
        """Check that rowpost is deployed here, by a release that serves this program's.

        Raises SchemaMissing (run rowpost apply) and SchemaTooNew (use a newer rowpost).
        """
        rows = self.call("get_version")
        if not rows:
            raise SchemaMissing("rowpost is not deployed in this database. Run: rowpost apply")
        deployed, ours = rows[0].schema_version, schema_version(self.engine)
        if deployed > ours and not is_served_by(rows[0].tool_version):
            raise SchemaTooNew(
                f"The database has schema {deployed}, deployed by rowpost {rows[0].tool_version}, which keeps the "
                f"procedures of one release before it; this is rowpost {__version__} with schema {ours}. Install a "
                "newer rowpost here."
            )


def _failed_statement(error: Exception, statements: list[Statement]) -> Statement | None:
    """Return the call of a batch that failed: by its place if the driver knows it, else by the procedure that the
    server names.
    """
    place = getattr(error, "failed_call", 0 if len(statements) == 1 else None)
    if place is not None:
        return statements[place] if 0 <= place < len(statements) else None
    said = str(error).casefold()  # an engine that ignores case may fold names
    named = (each for each in statements if each.key and f"{each.procedure.name}:{each.key}".casefold() in said)
    return next(named, None)


@lru_cache(maxsize=4096)
def _spell(dialect: Dialect, name: str, queue: str | None) -> Statement:
    contract = load_contract()
    procedure = contract.find(name, "database") if queue is None else contract.find_template(name)
    key = None if queue is None else queue_key(parse_address(queue), dialect.name)
    return dialect.spell(procedure, queue, key)


def connect_url(
    engine: str, url: str, application_name: str = "rowpost", *, legacy_columns: bool = False
) -> Connection:
    """Open a connection by engine and URL (PostgreSQL) or ODBC connection string (SQL Server).

    Raises DatabaseUnavailable if no server answers, and LoginRefused if user, password or database are wrong.
    """
    dialect = dialect_for(engine)
    return Connection(
        dialect.connect(url, application_name),
        dialect,
        open_second=lambda: connect_url(engine, url, application_name, legacy_columns=legacy_columns),
        legacy_columns=legacy_columns,
    )


def connect(settings: Settings, application_name: str = "rowpost") -> Connection:
    """Open a connection as the settings say. Starts the embedded PostgreSQL if they name no server.

    Raises DatabaseUnavailable if no server answers, and LoginRefused if user, password or database are wrong.
    """
    legacy_columns = compat_of(settings.compat).legacy_columns
    return connect_url(settings.engine, _url(settings), application_name, legacy_columns=legacy_columns)


def database_url(settings: Settings) -> str:
    """Return the URL of an environment's database, or its ODBC connection string, for other packages: with its
    password, also if that has a source of its own, as it is now.

    Starts the embedded PostgreSQL if the settings name no server; it runs until this process ends.

    Raises:
        DatabaseUnavailable: the embedded server does not start.
        PasswordUnavailable: the source of the password cannot be read.
    """
    return with_its_password(_url(settings))


def _url(settings: Settings) -> str:
    if settings.url is not None:
        return settings.url
    from rowpost.database import embedded

    return embedded.start(settings.data_folder)
