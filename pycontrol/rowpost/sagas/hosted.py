"""The sagas of one endpoint: their methods become handlers, their tables are part of the deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import SettingsError
from rowpost.handling.handlers import RegisteredHandler
from rowpost.handling.surroundings import Surroundings
from rowpost.sagas.audit import SagaAudit
from rowpost.sagas.declaration import Saga
from rowpost.sagas.invocation import SagaInvocation, SagaTables
from rowpost.settings.environment import SagaSettings
from rowpost.transport.directory import Place
from rowpost.wire.message import Message
from rowpost.wire.message_types import type_name
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["HostedSagas"]


class HostedSagas:
    """The sagas of one endpoint.

    Args:
        mode: the endpoint's transaction mode.
        surroundings: what surrounds the endpoint's handlers.
        outbox: the name of the endpoint's outbox, whose business database has the tables; empty if it has none.
    """

    def __init__(self, endpoint: str, mode: str, surroundings: Surroundings, *, outbox: str) -> None:
        self._endpoint, self._mode, self._surroundings, self._outbox = endpoint, mode, surroundings, outbox
        self._hosted: dict[str, type[Saga[Any]]] = {}
        self._names = SagaTables()
        self._audit = SagaAudit(endpoint, has_outbox=bool(outbox))

    @property
    def tables(self) -> tuple[SagaSettings, ...]:
        """The tables that the sagas need."""
        return tuple(saga.declaration.settings_for(self._endpoint, self._outbox) for saga in self._hosted.values())

    def host(self, saga: type[Saga[Any]]) -> Iterator[tuple[RegisteredHandler, str | None]]:
        """Yield the handlers that a saga adds to the endpoint, each with the event that it subscribes to, if any.

        Raises:
            SettingsError: as for Endpoint.saga.
        """
        if not hasattr(saga, "declaration"):
            raise SettingsError(
                f"{saga.__name__} is not declared as a saga. Write class {saga.__name__}(Saga[State], correlate={{…}})."
            )
        if self._mode == "none":
            raise SettingsError(
                f"The saga {saga.__name__} cannot run in an endpoint with the transaction mode none: the message is "
                "removed before the state is stored, so that a failure would lose it. Use receive_only or "
                "sends_atomic_with_receive."
            )
        table = saga.declaration.table_for(self._endpoint)
        other = self._hosted.setdefault(table.casefold(), saga)
        if other is not saga:
            raise SettingsError(
                f"The sagas {other.__name__} and {saga.__name__} have the same table, {table}. Name another one for "
                "one of them: table='…'."
            )
        if [each.declaration.name for each in self._hosted.values()].count(saga.declaration.name) > 1:
            raise SettingsError(
                f"Two sagas of {self._endpoint} are named {saga.declaration.name}, so that timeouts and replies of one "
                "could reach the other. Name one of them: name='…'."
            )
        for method in saga.declaration.methods:
            wanted, hosted = type_name(method.cls), self._hosted.values()
            invocation = SagaInvocation(saga, method, table, self._names, self._audit, hosted, self._surroundings)
            yield RegisteredHandler(wanted, method.cls, invocation), wanted if method.subscribe else None

    def audit(self, database: Connection, place: Place, *, reply_to: str) -> None:
        """Report changes of instances to ServiceControl's queue, see `SagaAudit.start`."""
        self._audit.start(database, place, reply_to=reply_to)

    def in_lock_order(
        self, messages: list[Message], read: Callable[[Message], Iterable[tuple[RegisteredHandler, Any]]]
    ) -> list[Message]:
        """Return the messages of a batch in the order in which all workers lock instances, which avoids deadlocks.

        Messages of one instance keep their order. Messages that no saga handles, or that cannot be read, come first.

        Args:
            read: returns a message's handlers, each with the decoded message.
        """
        if not self._hosted:
            return messages

        def key(message: Message) -> list[tuple[str, bool, str]]:
            try:
                found = list(read(message))
            except Exception:  # noqa: BLE001 -- any error of a serializer: the message fails when it is handled
                return []
            return sorted(
                each.function.lock_key(body, message.headers)
                for each, body in found
                if isinstance(each.function, SagaInvocation)
            )

        return sorted(messages, key=key)

    def store(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        """Make the calls that store what sagas changed, and return the messages.

        In mode `receive_only` and in batches, this must not wait until the messages are sent. Otherwise the calls are
        made together with what is sent.
        """
        calls = [each for each in outgoing if isinstance(each, Call)]
        if not calls:
            return outgoing
        database.call_all(calls)
        return [each for each in outgoing if not isinstance(each, Call)]
