"""What a dialect does for `database.connection`: the protocol, and the values that pass between both."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter
from typing import Any, Literal, NoReturn, Protocol

from rowpost.database.contract import Procedure
from rowpost.errors import RowpostError

__all__ = [
    "Begin", "Check", "Commit", "Dialect", "Guard", "NoGuard", "Statement", "object_name", "statement_of",
]  # fmt: skip


#: whether a call opens a transaction; "distributed": one over several SQL Servers; "commit_guarded": one that a plain
#: COMMIT does not end, so that a handler's SQL cannot commit the removal of messages that are not handled
Begin = bool | Literal["distributed", "commit_guarded"]


#: whether a transaction is committed after the calls; "commit_guarded": one that was begun so
Commit = bool | Literal["commit_guarded"]


@dataclass(frozen=True)
class Check:
    """The result of one check of `rowpost doctor`. `state` is ok, note or bad. `advice` says what to do."""

    name: str
    state: str
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A call, spelt once and executed often.

    `queue` is the name of the queue for which the procedure was rendered; `parameters` are the names and types
    that this engine has, in order; `known` are all names of the contract.
    """

    text: str
    procedure: Procedure
    queue: str | None
    parameters: tuple[tuple[str, str], ...]
    known: frozenset[str]
    result_types: tuple[str, ...]
    #: turns the values of one row into a named tuple
    make_row: Callable[[Iterable[Any]], Any]
    #: the key by which rows are sorted here; None if the statement promises the contract's order
    order: Callable[[Any], Any] | None
    #: driver's type hints, one per placeholder, where the driver cannot see them from a null
    sizes: tuple[Any, ...] = ()
    #: the queue's key, where a batch's error names the procedure that failed and not its place
    key: str | None = None


def statement_of(
    engine: str, procedure: Procedure, queue: str | None, key: str | None, text: str, sizes: tuple[Any, ...] = ()
) -> Statement:
    """Return the call of a procedure that an engine spells as `text`, with the driver's type hints `sizes`."""
    types_of_result = tuple(column.type for column in procedure.result)
    return Statement(
        text=text,
        procedure=procedure,
        queue=queue,
        parameters=tuple((each.name, each.type) for each in procedure.parameters_on(engine)),
        known=frozenset(each.name for each in procedure.parameters),
        result_types=types_of_result,
        make_row=_row_maker(procedure.name, tuple(column.name for column in procedure.result), types_of_result),
        order=_row_order(procedure),
        sizes=sizes,
        key=key,
    )


def object_name(dialect: Dialect, procedure: Procedure, key: str | None) -> str:
    """Return the quoted name of a procedure, or of the one that was rendered for a queue or a saga, with its schema."""
    return f"rowpost.{procedure.name}" if key is None else f"rowpost.{dialect.quote(f'{procedure.name}:{key}')}"


@cache
def _row_maker(procedure: str, columns: tuple[str, ...], types: tuple[str, ...]) -> Callable[[Iterable[Any]], Any]:
    """Return the function that turns the values of a procedure's row into a named tuple, with the contract's columns.

    Rows with bodies of messages stay plain tuples: names would cost 3 % of the processor time of receiving 100
    messages.
    """
    if "binary" in types:
        return tuple
    # tuple.__new__ needs no frame of Python for each row, as the class's _make does
    return partial(tuple.__new__, namedtuple(f"{procedure}_row", columns))


def _row_order(procedure: Procedure) -> Callable[[Any], Any] | None:
    """Return the key by which a procedure's rows are sorted here; None if the statement itself promises the contract's
    order.

    Neither OUTPUT nor RETURNING promises an order, and a sort on the server copies every body.
    """
    if procedure.ordered_by is None:
        return None
    return itemgetter([column.name for column in procedure.result].index(procedure.ordered_by))


class Guard(Protocol):
    """The guard of one connection, which several handlers use one after the other.

    Attributes:
        ended: the command of a handler's SQL that ended the transaction, COMMIT or ROLLBACK; None if none did, or none
            was seen.
        changed: what a handler may have changed: "transaction" for settings until its end, "session" for those that
            last, "prepared" for the prepared statements.
    """

    ended: str | None

    @property
    def changed(self) -> AbstractSet[str]: ...

    def start(self, message: Any = None, *, in_place: bool = False) -> None:
        """Begin to guard, for one handler.

        Args:
            message: for the error of a use after the handler's end.
            in_place: the handler may reach the connection without `lend`.
        """

    def lend(self, connection: Any) -> Any:
        """Return the object that the handler uses for the driver's connection."""

    def lend_async(self, connection: Any) -> Any:
        """Return the object that an `async def` handler uses for the driver's connection; None as `asynchronous`."""

    def lend_mapped(
        self, connection: Any, *, types: Any = None, cursors: type[Any] | None = None, is_async: bool = False
    ) -> Any:
        """Return another object for the handler's session, which maps types in its own way; None as `asynchronous`.

        Args:
            connection: the driver's connection.
            types: what the driver calls its adapters; None: those of the connection.
            cursors: the class of its cursors; None: the driver's.
            is_async: whether it is for an event loop.
        """

    def stop(self) -> None:
        """Stop guarding, and refuse further use of what was lent where the driver allows that. Can be called again."""


class NoGuard:
    """Guards nothing: for connections of drivers that offer no way, and while there is no connection."""

    ended: str | None = None
    changed: AbstractSet[str] = frozenset()

    def start(self, message: Any = None, *, in_place: bool = False) -> None: ...
    def stop(self) -> None: ...

    def lend(self, connection: Any) -> Any:
        """Return the connection."""
        return connection

    def lend_async(self, connection: Any) -> Any:
        """Return None: see `Dialect.asynchronous`."""
        return None

    def lend_mapped(
        self, connection: Any, *, types: Any = None, cursors: type[Any] | None = None, is_async: bool = False
    ) -> Any:
        """Return the connection; None for an event loop."""
        return None if is_async else connection


class Dialect(Protocol):
    """One engine."""

    name: str

    def __hash__(self) -> int: ...

    def connect(self, url: str, application_name: str) -> Any:
        """Open a connection in autocommit mode. Raises DatabaseUnavailable, LoginRefused, SettingsError."""

    def session(self, connection: Any) -> Any:
        """Return what `execute`, `execute_all` and `stream` use: the connection, or what keeps something on it between
        calls.
        """

    def spell(self, procedure: Procedure, queue: str | None, key: str | None) -> Statement:
        """Spell the call of a procedure."""

    def execute(self, session: Any, statement: Statement, arguments: dict[str, Any], begin: Begin) -> list[Any]:
        """Make a call; with `begin`, open the transaction in the same round trip.

        Rows stand in the contract's order.
        """

    def execute_all(
        self, session: Any, calls: Sequence[tuple[Statement, dict[str, Any]]], begin: Begin, commit: Commit
    ) -> list[list[Any]]:
        """Call several at once, optionally between BEGIN and COMMIT; the rows of each."""

    def stream(
        self, session: Any, statement: Statement, arguments: dict[str, Any], columns: Sequence[str], chunk_bytes: int
    ) -> Iterator[Any]:
        """Make a call; the rows, with these columns at least, come in chunks of about so many bytes."""

    def script(self, connection: Any, text: str) -> list[tuple[Any, ...]]:
        """Execute one batch of a script as it stands; return the rows of its last result, if any."""

    def join(self, connection: Any) -> bool:
        """Open the transaction that a lent connection's driver would; return False where that is left to rowpost
        (autocommit).
        """

    def begin(self, connection: Any) -> None: ...
    def commit(self, connection: Any) -> None: ...
    def rollback(self, connection: Any) -> None: ...
    def savepoint(self, connection: Any, name: str) -> None: ...
    def rollback_to(self, connection: Any, name: str) -> None: ...
    def release(self, connection: Any, name: str) -> None: ...

    def in_transaction(self, connection: Any) -> bool:
        """Return whether a transaction is open, begun by anybody. Asks the server only if the driver does not know."""

    def left_open(self, connection: Any) -> bool:
        """Return whether a transaction is open, as far as the driver knows without asking the server; False if it does
        not know.
        """

    def is_intact(self, session: Any, begin: Begin) -> bool:
        """Return whether the transaction that was begun so is still open and can be committed.

        Asks the server only if the driver does not know.
        """

    def found_no_transaction(self, error: BaseException | None) -> bool:
        """Return whether a driver's error says that a COMMIT did not find the transaction that was begun.

        On PostgreSQL: a guarded one.
        """

    def was_replaced(self, connection: Any) -> bool:
        """Return whether a handler ended the transaction and began another one.

        It is rolled back next. On PostgreSQL: a guarded one.
        """

    def is_closed(self, connection: Any) -> bool: ...

    def clock(self, connection: Any) -> float:
        """Return the server's time, in seconds since 1970."""

    def session_limits(self, connection: Any) -> list[str]:
        """Say which settings end the session of a handler that works for long, where they are set, and what to do."""

    def connection_limit(self, connection: Any) -> int:
        """Return how many connections the server allows to this login in this database, those that exist included."""

    def encoding_limits(self, connection: Any) -> list[str]:
        """Say what does not work because of the database's encoding, and what to do. Costs no round trip."""

    def was_started(self, connection: Any, seconds: float) -> bool:
        """Return whether the server was started within the last seconds, as far as it says that."""

    def check_deployable(self, connection: Any) -> None:
        """Check that the database can run the scripts. Raises UnsupportedServer."""

    def checks(self, connection: Any, schemas: Sequence[str], *, roles: bool) -> Iterator[Check]:
        """Check what the server allows: writing, the rights of a deployment with queues in these schemas, and more.

        `roles` says whether the environment has rowpost's roles.
        """

    def listen(self, connection: Any) -> bool:
        """Start to receive notifications of senders. Return False if the engine has none."""

    def heard(self, connection: Any) -> list[str]:
        """Return the keys of queues of which senders have notified since the last call, without waiting."""

    def reset_session(self, session: Any, changed: Collection[str]) -> None:
        """Undo what a handler changed (`Guard.changed`), before the next one.

        A transaction stays open, and may be doomed.
        """

    def limit_lock_waits(self, connection: Any, milliseconds: int | None) -> None:
        """Let the session's statements wait for a lock at most so long; None: as the login's settings say."""

    def limit_statements(self, connection: Any, milliseconds: int) -> None:
        """Let each statement of the session run at most so long, rounded up to what the driver counts; then it is
        cancelled. 0: no limit.
        """

    def executable(self, connection: Any, procedures: Sequence[str]) -> set[str]:
        """Return the rendered names of those of the procedures that the login may execute, such as
        purge_queue:Sales.
        """

    def translate(self, error: Exception, statement: Statement | None = None) -> RowpostError:
        """Return the driver's error as one of rowpost's."""

    def driver_error(self) -> type[Exception]: ...

    def guard(
        self, connection: Any, refuse: Callable[[str], NoReturn] | None, refuse_late: Callable[[Any], NoReturn]
    ) -> Guard:
        """Return the guard of a connection that handlers use.

        It calls `refuse` with the verb of what a handler must not do, and `refuse_late` with its message if it uses the
        connection after its end. Without `refuse`, handlers may have transactions of their own.
        """

    def database_name(self, connection: Any) -> str: ...
    def cut(self, connection: Any) -> None:
        """End a session although another thread may be using it, as far as the driver allows that."""

    def asynchronous(self, connection: Any) -> Any:
        """Return what executes SQL on an event loop, in the session of a connection; None if the driver has none."""

    def quote(self, name: str) -> str: ...
    def literal(self, value: Any) -> str: ...
    def script_call(self, procedure: Procedure, arguments: Sequence[tuple[str, Any]]) -> str:
        """Return a call with literals, for a script that a person runs by hand."""
