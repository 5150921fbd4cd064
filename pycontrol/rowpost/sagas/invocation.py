"""One message through one saga: find the instance, run the method, and say what is to be stored.

    load_saga (locked, where the saga is pessimistic)
      -> found: the stored state        -> nothing: a new state, or not_found
      -> the method -> insert_saga, update_saga or complete_saga, in the round trip that also sends and commits
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec

from rowpost.database.connection import Connection
from rowpost.errors import InvalidCorrelation, LockTimeout, SagaNotDeployed
from rowpost.handling.context import Context
from rowpost.sagas.context import ORIGINATING_SAGA_ID, ORIGINATING_SAGA_TYPE, SAGA_ID, SAGA_TYPE, TIMEOUT, SagaContext
from rowpost.sagas.correlation import correlation_text
from rowpost.sagas.declaration import Method, Saga
from rowpost.sagas.state import decode_state, encode_state
from rowpost.version import __version__
from rowpost.wire.operation import Call

__all__ = ["INVOKED", "Running", "SagaTables"]

#: on the audit's copy: which instances a message came to, as ServiceControl reads it
INVOKED = "NServiceBus.InvokedSagas"
_MILLISECOND = timedelta(milliseconds=1)
_VERSION = __version__[:23]

logger = logging.getLogger("rowpost.sagas")


class SagaTables:
    """Which names the registry has for tables of sagas, remembered until somebody asks for one that it does not know."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def find(self, database: Connection, table: str) -> str:
        """The registered name of a table, whatever its schema. Raises SagaNotDeployed."""
        if table not in self._names:
            rows = database.call("list_saga_types")
            self._names = {row[3]: row[0] for row in rows} | {row[0]: row[0] for row in rows}
        if table not in self._names:
            raise SagaNotDeployed(
                f"The saga's table {table} is not deployed in this database. Run rowpost apply with an environment that "
                "names its endpoint as a worker, or declares the table below sagas."
            )
        return self._names[table]


class Running:
    """A saga's method as an endpoint's handler: called as handler(message, context)."""

    def __init__(self, saga: type[Saga], method: Method, table: str, tables: SagaTables) -> None:
        self._saga, self._method, self._table, self._tables = saga, method, table, tables
        self._declared = saga.declaration
        self.__qualname__ = f"{saga.__qualname__}.{method.name}"

    def __call__(self, message: Any, context: Context) -> Any:
        """Runs the method; what is to be stored stands before whatever the message sends.

        Raises:
            InvalidCorrelation, InvalidSagaState, LockTimeout, SagaNotDeployed. Whatever the method raises.
        """
        place = self._place(message, context)
        if place is None:
            return None
        name = self._tables.find(context.database, self._table)
        row = self._load(context.database, name, place)
        if row is None and not (self._method.starts and "correlation_value" in place):
            return self._not_found(message, context)
        saga, metadata = self._revive(row) if row else self._start(message, context)
        before = getattr(saga.state, self._declared.property)
        inner = SagaContext(context, saga.id, self._declared.name, metadata)
        returned = getattr(saga, self._method.name)(message, inner)
        self._refuse_other_correlation(saga, before)
        context.operations[:0] = self._store(saga, row, metadata, name)
        invoked = context.audit_headers.get(INVOKED)
        context.audit_headers[INVOKED] = f"{invoked};" * bool(invoked) + f"{self._declared.name}:{saga.id}"
        return returned

    # -------------------------------------------------------------- finding
    def lock_key(self, message: Any, headers: Mapping[str, str | None]) -> tuple[str, bool, str]:
        """A place in an order of instances that all workers agree on: the table, and the correlation value or the id.

        Values that some collation takes for one, since case or trailing blanks differ, are one here too.
        """
        named = headers.get(SAGA_ID)
        if named:
            return self._table, True, named.casefold()
        return self._table, False, str(getattr(message, self._method.field or "", "")).casefold().rstrip()

    def _place(self, message: Any, context: Context) -> dict[str, Any] | None:
        """How to find the instance; None: the message is a timeout of another saga, or an answer to one."""
        headers = context.incoming.headers
        named, of = headers.get(SAGA_ID), (headers.get(SAGA_TYPE) or "").partition(",")[0].strip()
        if named and of in ("", self._declared.name):
            return {"id": _parse_id(named)}
        field = self._method.field
        if headers.get(TIMEOUT) == "True" or (named and field is None):
            return None
        if field is None:
            raise InvalidCorrelation(
                f"The message {context.message_id} names no saga, and {self._saga.__name__} does not say which field of "
                f"{type(message).__name__} does: correlate={{{type(message).__name__}: '…'}}."
            )
        return {"correlation_value": self._text(getattr(message, field, None), f"{type(message).__name__}.{field}")}

    def _text(self, value: Any, of: str) -> str:
        return correlation_text(value, self._declared.kind, of)

    def _load(self, database: Connection, name: str, place: dict[str, Any]) -> tuple | None:
        wait = max(1, self._declared.lock_timeout // _MILLISECOND)
        try:
            rows = database.call("load_saga", name, **place, locked=not self._declared.optimistic, lock_timeout_ms=wait)
        except LockTimeout as error:
            raise LockTimeout(
                f"The saga {self._saga.__name__} {next(iter(place.values()))} was locked by another message for more than "
                f"{self._declared.lock_timeout.total_seconds():g} s. Handlers of sagas should be short; see lock_timeout."
            ) from error
        return rows[0] if rows else None

    def _not_found(self, message: Any, context: Context) -> None:
        if context.incoming.headers.get(TIMEOUT) == "True":
            logger.info(
                "No saga %s found for timeout %s (%s): it was complete before its time. Discarded.",
                self._declared.name, context.message_id, type(message).__name__,
            )  # fmt: skip
        else:
            self._saga.not_found(message, context)

    # -------------------------------------------------------------- its state
    def _start(self, message: Any, context: Context) -> tuple[Saga, dict[str, str]]:
        value = getattr(message, str(self._method.field))
        headers = context.incoming.headers
        metadata = {
            "OriginalMessageId": context.message_id,
            "Originator": context.incoming.reply_to,
            "OriginatingSagaId": headers.get(ORIGINATING_SAGA_ID),
            "OriginatingSagaType": headers.get(ORIGINATING_SAGA_TYPE),
        }
        saga = self._make(uuid4(), self._declared.state(**{self._declared.property: value}))
        return saga, {name: text for name, text in metadata.items() if text}

    def _revive(self, row: tuple) -> tuple[Saga, dict[str, str]]:
        declared = self._declared
        key, data, metadata, _ = row
        state = decode_state(data, declared.state, f"{declared.name} {key}", declared.renamed, declared.removed)
        return self._make(key, state), msgspec.json.decode(metadata) if metadata else {}

    def _make(self, key: UUID, state: Any) -> Saga:
        saga = self._saga()
        saga.id, saga.state = key, state
        return saga

    def _refuse_other_correlation(self, saga: Saga, before: Any) -> None:
        name = self._declared.property
        now = getattr(saga.state, name)
        if now != before or type(now) is not type(before):
            raise InvalidCorrelation(
                f"The handler {self.__qualname__} changed {name} from {before!r:.60} to {now!r:.60}. A saga is found by it "
                "all its life: start another saga instead. Nothing was stored."
            )

    # -------------------------------------------------------------- storing
    def _store(self, saga: Saga, row: tuple | None, metadata: dict[str, str], name: str) -> list[Call]:
        """The calls that keep what the method did to the instance."""
        if saga.completed:
            # started and completed by one message, it leaves nothing
            return [Call("complete_saga", name, {"id": saga.id, "concurrency": row[3]})] if row else []
        declared = self._declared
        data = encode_state(saga.state, f"{declared.name} {saga.id}")
        content = {"id": saga.id, "data": data, "persistence_version": _VERSION, "saga_type_version": declared.version}
        if row is None:
            value = self._text(getattr(saga.state, declared.property), declared.property)
            start = {"correlation_value": value, "metadata": msgspec.json.encode(metadata).decode()}
            return [Call("insert_saga", name, {**content, **start}), *self._second_correlation(saga, name)]
        if not declared.optimistic and msgspec.json.decode(data) == msgspec.json.decode(row[1]):
            return []  # locked and as it was
        return [Call("update_saga", name, {**content, "concurrency": row[3]}), *self._second_correlation(saga, name)]

    def _second_correlation(self, saga: Saga, name: str) -> list[Call]:
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
        raise InvalidCorrelation(f"The header {SAGA_ID} holds {text!r:.60}, which is no id of a saga.") from error
