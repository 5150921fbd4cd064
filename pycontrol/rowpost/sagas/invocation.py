"""Process one message by one saga: find the instance, run the method, and return the calls that store its state.

load_saga (with a lock if the saga is pessimistic)
  -> found: the stored state        -> nothing: a new state, or not_found
  -> the method -> insert_saga, update_saga or complete_saga, in the round trip that also sends and commits

If several methods of a saga handle one message, because it has several types, they share the loaded instance. Each
replaces the calls of the one before, so that the instance is stored once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec

from rowpost.database.connection import Connection
from rowpost.errors import InvalidCorrelation, LockTimeout, SagaNotDeployed
from rowpost.handling.context import Context
from rowpost.handling.event_loop import is_async
from rowpost.handling.handlers import call_async
from rowpost.handling.surroundings import Surroundings
from rowpost.recoverability.outcome import Discard
from rowpost.sagas.audit import InstanceChange, SagaAudit
from rowpost.sagas.context import AsyncSagaContext, SagaContext
from rowpost.sagas.correlation import Header, correlation_text
from rowpost.sagas.declaration import METHODS_OWN, Method, Saga
from rowpost.sagas.state import decode_state, encode_state
from rowpost.version import __version__
from rowpost.wire.headers import (
    INVOKED_SAGAS,
    IS_SAGA_TIMEOUT,
    ORIGINATING_SAGA_ID,
    ORIGINATING_SAGA_TYPE,
    SAGA_ID,
    SAGA_TYPE,
)
from rowpost.wire.message_types import type_name, without_assembly
from rowpost.wire.outgoing import Call, Outgoing
from rowpost.wire.saga_audit import SagaChangeOutput

__all__ = ["SagaInvocation", "SagaTables"]
_MILLISECOND = timedelta(milliseconds=1)
_VERSION = __version__[:23]
_Sent = list[SagaChangeOutput] | None


@dataclass
class _Loaded:
    """An instance that the methods of one message share, with the registered name of its table.

    `row` is as it was loaded; None if this message starts the instance. `calls` store it; None before the first method.
    """

    saga: Saga[Any]
    table: str
    metadata: dict[str, str]
    row: Any = None
    calls: list[Call] | None = None


class SagaTables:
    """Cache of the registered names of saga tables; read again when an unknown name is requested."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def find(self, database: Connection, table: str) -> str:
        """Return the registered name of a table in any schema. Raises SagaNotDeployed."""
        if table not in self._names:
            rows = database.call("list_saga_types")
            self._names = {row.table_name: row.saga_name for row in rows} | {
                row.saga_name: row.saga_name for row in rows
            }
        if table not in self._names:
            raise SagaNotDeployed(
                f"The saga's table {table} is not deployed in this database. Run `rowpost apply` with an environment "
                "that names its endpoint as a worker, or that declares the table below `sagas`."
            )
        return self._names[table]


class SagaInvocation:
    """A saga's method as an endpoint's handler; called as handler(message, context).

    `hosted` are the sagas of the endpoint, and `surroundings` surround its handlers.
    """

    def __init__(
        self,
        saga: type[Saga[Any]],
        method: Method,
        table: str,
        tables: SagaTables,
        audit: SagaAudit,
        hosted: Collection[type[Saga[Any]]],
        surroundings: Surroundings,
    ) -> None:
        self._saga, self._method, self._table, self._tables = saga, method, table, tables
        self._audit, self._hosted = audit, hosted
        self._declared = saga.declaration
        self._function = getattr(saga, method.name)
        self._is_async = is_async(self._function)
        self.__qualname__ = f"{saga.__qualname__}.{method.name}"
        self._surroundings = surroundings
        surroundings.add(self._function, self.__qualname__, own=METHODS_OWN)

    def __call__(self, message: Any, context: Context) -> Any:
        """Run the method, and add the calls that store the state to the context's outgoing messages.

        Raises:
            InvalidCorrelation: the message does not identify an instance, or the method changed the correlation value.
            InvalidSagaState: the stored state does not fit its class, or the new one cannot be stored.
            LockTimeout: another message has locked the instance for too long.
            SagaNotDeployed: the saga has no table in this database.
            Exception: any error of the method.
        """
        database = context.business_database
        loaded = self._find(message, context, database)
        if loaded is None or loaded.saga.completed:
            return None
        saga = loaded.saga
        before = getattr(saga.state, self._declared.property)
        sent: _Sent = [] if self._audit.on else None
        inner = SagaContext(context, saga.id, self._declared, loaded.metadata, sent)
        started = datetime.now(UTC)
        try:
            run = getattr(saga, self._method.name)
            if self._surroundings.any:
                run = self._surroundings.around(run, self._function)
            if self._is_async:
                name = f"The saga's method {self.__qualname__}"
                returned = call_async(run, message, inner, name, AsyncSagaContext, self._function)
            else:
                returned = run(message, inner)
        finally:
            inner.end()
        self._check_correlation_unchanged(saga, before)
        self._add_calls(loaded, context, started, sent)
        return returned

    def _add_calls(self, loaded: _Loaded, context: Context, started: datetime, sent: _Sent) -> None:
        """Add the calls that store the instance, instead of those of the method before, and report the change."""
        saga, is_new = loaded.saga, loaded.row is None and loaded.calls is None
        for each in loaded.calls or ():
            context.outgoing.remove(each)
        loaded.calls = self._store(loaded)
        added: list[Outgoing] = [*loaded.calls]
        if sent is not None:
            change = InstanceChange(
                self._declared.name, saga.id, saga.state, loaded.metadata, is_new, saga.completed, started, sent
            )
            added += self._audit.report_of(change, context, type_name(self._method.cls))
        # before the messages: a conflict must fail the call before anything is sent
        for place, call in enumerate(added):
            context.outgoing.insert(place, call)
        invoked = [context.audit_headers.get(INVOKED_SAGAS), f"{self._declared.name}:{saga.id}"]
        context.audit_headers[INVOKED_SAGAS] = ";".join(filter(None, invoked))

    # -------------------------------------------------------------- finding
    def lock_key(self, message: Any, headers: Mapping[str, str | None]) -> tuple[str, bool, str]:
        """Return the sort key of an instance: the table, and the correlation value or the id.

        It is the same in all workers.

        Values that a collation may treat as equal, because they differ in case or trailing blanks, are equal here, too.
        """
        named = headers.get(SAGA_ID)
        if named:
            return self._table, True, named.casefold()
        return self._table, False, str(self._method.value_in(message, headers)).casefold().rstrip()

    def _find(self, message: Any, context: Context, database: Connection) -> _Loaded | None:
        """Return the instance that the message is for, loaded or started; None if there is none, which is dealt with.

        A timeout or a reply of a type of saga that this endpoint does not host finds its instance by the id alone,
        because the saga may have been renamed.
        """
        headers, declared = context.incoming.headers, self._declared
        named, of = headers.get(SAGA_ID), without_assembly(headers.get(SAGA_TYPE) or "")
        is_timeout = headers.get(IS_SAGA_TIMEOUT) == "True"
        if not (self._method.takes_timeouts if is_timeout else self._method.kind != "timeout"):
            self._not_here(context, f"{declared.name} takes only {'other messages' if is_timeout else 'timeouts'}")
            return None
        mine = of in ("", declared.name)
        if named and (mine or all(of != each.declaration.name for each in self._hosted)):
            found = self._load(context, database, "id", _parse_id(named))
            if found is None and mine:
                self._not_found(message, context)
            if found is not None or mine:
                return found
        if is_timeout or (named and self._method.field is None):
            self._not_here(context, f"{declared.name} has no instance of a saga {of or 'without a type'}")
            return None
        if self._method.field is None:
            raise InvalidCorrelation(
                f"The message {context.message_id} has no saga id, and {self._saga.__name__} does not declare which "
                f"field of {type(message).__name__} identifies the instance. Declare it: "
                f"correlate={{{type(message).__name__}: '…'}}."
            )
        field, cls = self._method.field, type(message).__name__
        value, of = self._method.value_in(message, headers), f"{cls}.{field}"
        if isinstance(field, Header):
            of = f"The header {field.name} of the {cls}"
            value = field.convert(value, declared.kind, of)
        text = self._text(value, of)
        found = self._load(context, database, "correlation_value", text)
        if found is None and self._method.starts:
            name = self._registered(context, database)
            found = context.loaded[name, "correlation_value", text] = self._start(value, name, context)
        elif found is None:
            self._not_found(message, context)
        return found

    def _text(self, value: Any, of: str) -> str:
        return correlation_text(value, self._declared.kind, of)

    def _registered(self, context: Context, database: Connection) -> str:
        """Return the registered name of the table. A business database has it in its default schema."""
        of_queues = database is context.database
        return self._tables.find(database, context.endpoint.resolve(self._table) if of_queues else self._table)

    def _load(self, context: Context, database: Connection, by: str, value: Any) -> _Loaded | None:
        name = self._registered(context, database)
        if (name, by, value) not in context.loaded:
            row = self._read(database, name, {by: value})
            if row is None:
                return None
            found = context.loaded.get((name, row.id)) or self._restore(row, name)
            context.loaded[name, by, value] = context.loaded[name, row.id] = found
        return context.loaded[name, by, value]  # type: ignore[no-any-return]

    def _read(self, database: Connection, name: str, key: dict[str, Any]) -> Any:
        lock_timeout_ms = max(1, self._declared.lock_timeout // _MILLISECOND)
        try:
            rows = database.call(
                "load_saga", name, **key, locked=not self._declared.optimistic, lock_timeout_ms=lock_timeout_ms
            )
        except LockTimeout as error:
            raise LockTimeout(
                f"The saga {self._saga.__name__} {next(iter(key.values()))} was locked by another message for more "
                f"than {self._declared.lock_timeout.total_seconds():g} s. Shorten the saga's handlers, or raise "
                "lock_timeout."
            ) from error
        return rows[0] if rows else None

    def _not_here(self, context: Context, reason: str) -> None:
        context.discards.append(Discard(f"it is for another handler: {reason}", elsewhere=True))

    def _not_found(self, message: Any, context: Context) -> None:
        if context.incoming.headers.get(IS_SAGA_TIMEOUT) == "True":
            context.discard(f"it is a timeout of a saga {self._declared.name} that is complete", expected=True)
        else:
            self._saga.not_found(message, context)

    # -------------------------------------------------------------- state
    def _start(self, value: Any, name: str, context: Context) -> _Loaded:
        headers = context.incoming.headers
        metadata = {
            "OriginalMessageId": context.message_id,
            "Originator": context.incoming.reply_to,
            "OriginatingSagaId": headers.get(ORIGINATING_SAGA_ID),
            "OriginatingSagaType": headers.get(ORIGINATING_SAGA_TYPE),
        }
        saga = self._make(uuid4(), self._declared.state(**{self._declared.property: value}))
        return _Loaded(saga, name, {key: text for key, text in metadata.items() if text})

    def _restore(self, row: Any, name: str) -> _Loaded:
        declared = self._declared
        state = decode_state(row.data, declared.state, f"{declared.name} {row.id}", declared.renamed, declared.removed)
        metadata = msgspec.json.decode(row.metadata) if row.metadata else {}
        return _Loaded(self._make(row.id, state), name, metadata, row)

    def _make(self, key: UUID, state: Any) -> Saga[Any]:
        saga = self._saga()
        saga._id, saga.state = key, state
        return saga

    def _check_correlation_unchanged(self, saga: Saga[Any], before: Any) -> None:
        name = self._declared.property
        now = getattr(saga.state, name)
        if now != before or type(now) is not type(before):
            raise InvalidCorrelation(
                f"The handler {self.__qualname__} changed {name} from {before!r:.60} to {now!r:.60}, but the "
                "correlation value of an instance cannot change. Nothing was stored. Start another instance instead."
            )

    # -------------------------------------------------------------- storing
    def _store(self, loaded: _Loaded) -> list[Call]:
        """Return the calls that store the instance."""
        saga, row, name = loaded.saga, loaded.row, loaded.table
        if saga.completed:
            # an instance that one message starts and completes has no row
            return [Call("complete_saga", name, {"id": saga.id, "concurrency": row.concurrency})] if row else []
        declared = self._declared
        data = encode_state(saga.state, f"{declared.name} {saga.id}")
        content = {"id": saga.id, "data": data, "persistence_version": _VERSION, "saga_type_version": declared.version}
        if row is None:
            value = self._text(getattr(saga.state, declared.property), declared.property)
            start = {"correlation_value": value, "metadata": msgspec.json.encode(loaded.metadata).decode()}
            return [Call("insert_saga", name, {**content, **start}), *self._second_correlation(saga, name)]
        if not declared.optimistic and msgspec.json.decode(data) == msgspec.json.decode(row.data):
            return []  # locked and unchanged
        return [
            Call("update_saga", name, {**content, "concurrency": row.concurrency}),
            *self._second_correlation(saga, name),
        ]

    def _second_correlation(self, saga: Saga[Any], name: str) -> list[Call]:
        declared = self._declared
        if declared.transitional is None or declared.transitional_kind is None:
            return []
        value = getattr(saga.state, declared.transitional)
        text = None if value is None else correlation_text(value, declared.transitional_kind, declared.transitional)
        return [Call("correlate_saga", name, {"id": saga.id, "correlation_value": text})]


def _parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise InvalidCorrelation(f"The header {SAGA_ID} is {text!r:.60}, which is not a saga's id.") from error
