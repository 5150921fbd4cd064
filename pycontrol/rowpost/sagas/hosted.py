"""The sagas of one endpoint: their methods among its handlers, their tables for its deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import SettingsError
from rowpost.handling.handlers import RegisteredHandler
from rowpost.sagas.declaration import Saga
from rowpost.sagas.invocation import Running, SagaTables
from rowpost.settings.environment import SagaSettings
from rowpost.wire.message import Message
from rowpost.wire.message_types import type_name
from rowpost.wire.operation import Call, Outgoing

__all__ = ["HostedSagas"]


class HostedSagas:
    """What an endpoint knows of its sagas."""

    def __init__(self, endpoint: str, mode: str, *, has_outbox: bool) -> None:
        self._endpoint, self._mode, self._has_outbox = endpoint, mode, has_outbox
        self._hosted: dict[str, type[Saga]] = {}
        self._names = SagaTables()

    @property
    def tables(self) -> tuple[SagaSettings, ...]:
        """The tables that they need."""
        return tuple(saga.declaration.settings_for(self._endpoint) for saga in self._hosted.values())

    def host(self, saga: type[Saga]) -> Iterator[tuple[RegisteredHandler, str | None]]:
        """The handlers that a saga adds to the endpoint, each with the event that it subscribes to, if any.

        Raises:
            SettingsError: as for Endpoint.saga.
        """
        if not hasattr(saga, "declaration"):
            raise SettingsError(f"{saga.__name__} is no saga yet: class {saga.__name__}(Saga[State], correlate={{…}}).")
        if self._mode == "none":
            raise SettingsError(
                f"The saga {saga.__name__} cannot run in an endpoint of the mode none: its message would be gone before its "
                "state is stored, and a failure would lose it. Use receive_only or sends_atomic_with_receive."
            )
        if self._has_outbox:
            raise SettingsError(
                f"The saga {saga.__name__} cannot run in the endpoint {self._endpoint!r}, which has an outbox: the saga's state "
                "lies beside the queue and the outbox in another database, and after a crash one would know of a message "
                "that the other does not. Give the saga an endpoint of its own."
            )
        table = saga.declaration.table_for(self._endpoint)
        other = self._hosted.setdefault(table.casefold(), saga)
        if other is not saga:
            raise SettingsError(f"The sagas {other.__name__} and {saga.__name__} have one table, {table}: give one table='…'.")
        for method in saga.declaration.methods:
            wanted = type_name(method.cls)
            yield RegisteredHandler(wanted, method.cls, Running(saga, method, table, self._names)), wanted if method.subscribe else None

    def in_lock_order(
        self, messages: list[Message], read: Callable[[Message], Iterable[tuple[RegisteredHandler, Any]]]
    ) -> list[Message]:
        """The messages of a batch, so that all workers lock instances in one order, and none waits for a circle of others.

        Messages of one instance stay in theirs. Those that no saga handles, or nobody can read, come first.

        Args:
            read: a message's handlers, each with the message as its class.
        """
        if not self._hosted:
            return messages

        def key(message: Message) -> list[tuple[str, bool, str]]:
            try:
                found = list(read(message))
            except Exception:  # noqa: BLE001 -- whatever a serializer raises: the message fails when its turn comes
                return []
            return sorted(each.function.lock_key(body, message.headers) for each, body in found if isinstance(each.function, Running))

        return sorted(messages, key=key)

    def store(self, database: Connection, operations: list[Outgoing]) -> list[Outgoing]:
        """Make the calls that store what sagas changed, and return the messages.

        In mode `receive_only` and in batches, this must not wait until the messages are sent. Otherwise the calls are made together
        with what is sent.
        """
        calls = [each for each in operations if isinstance(each, Call)]
        if not calls:
            return operations
        database.call_all(calls)
        return [each for each in operations if not isinstance(each, Call)]
