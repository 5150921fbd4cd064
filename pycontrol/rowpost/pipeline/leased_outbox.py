"""Handle leased messages of an endpoint with an outbox: the handler's data are in another database than its queue.

`LeasedOutbox` is the mode of an endpoint with `receive="lease"` and an outbox. One message takes these steps:

    queue      lease_messages, COMMIT
    business   find_handled, COMMIT                            the message was handled before: what it sent is sent, no handler runs
    the handler runs, without a transaction and without a connection
    queue      BEGIN, end_lease by the token                   who has lost the lease commits nothing
    business   BEGIN, record_handled, the handler's SQL        the handler's return, or the block of context.commit()
               store_operations, COMMIT                        from here on the message is handled
    queue      record_dispatch, what was sent, COMMIT          this removes the message
    business   settle_operations, COMMIT
    queue      forget_dispatch, COMMIT

If a process dies before the business commit, nothing has happened. If it dies after it, the lease expires, and whoever takes
the message next finds it handled. What is left of the last two steps, `outbox.cleanup` does.
"""  # noqa: E501

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rowpost.database.connection import Connection
from rowpost.database.pool import Connections
from rowpost.errors import AlreadyDispatched, AlreadyHandled, LeaseLost, RowpostError
from rowpost.handling.processor import Caused, Receiver
from rowpost.outbox.declaration import decode_outgoing, encode_outgoing, named
from rowpost.pipeline.lease import Leased, Leasing, check_once
from rowpost.recoverability.outcome import Outcome
from rowpost.recoverability.retries import roll_back
from rowpost.recoverability.stopping import STOP
from rowpost.transactions.leases import Lease, LeaseScope, Lend
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["LeasedOutbox"]

logger = logging.getLogger("rowpost")


class LeasedOutbox(Leased):
    """The mode of an endpoint with `receive="lease"` and an outbox. Not for several threads at once.

    Args:
        receiver: what the pipeline and the mode share.
        leasing: what the pipelines of the process share.
        business: lends connections to the business database.
    """

    def __init__(self, receiver: Receiver, leasing: Leasing, business: Connections) -> None:
        super().__init__(receiver, leasing)
        self._business, self._name = business, receiver.processor.outbox.database

    # -------------------------------------------------------------- one message
    def handle(self, message: Message) -> Outcome:
        """Run the handler of the leased message, and commit; or treat the failed attempt.

        Raises:
            DatabaseError: the business database cannot be reached, or not be used. The message is in its queue again.
        """
        lease = self._lease
        try:
            known = self._find(message)
        except RowpostError:
            self._give_back(lease)
            raise
        if known is not None:
            return self._repeat(message, lease, *known)
        return super().handle(message)

    def _find(self, message: Message) -> tuple[Any, ...] | None:
        """Return the stored outgoing messages and their age, or None if the message was not handled."""
        with named(self._name), self._business.borrow() as business:
            rows = business.call_atomically("find_handled", **self._key(message))
        return rows[0] if rows else None

    def _send(self, message: Message, lease: Lease, caused: Caused) -> None:
        """Remove the message by its token, and commit what was sent, in both databases."""
        if message.expired:
            super()._send(message, lease, caused)
            return
        with self._transactions_of(message, lease) as (database, business):
            self._store(business, message, caused.outgoing)
            self._dispatch(database, message, caused.outgoing)
        self._settle(message, caused.outgoing)

    @contextmanager
    def _transactions_of(self, message: Message, lease: Lease) -> Iterator[tuple[Connection, Connection]]:
        """Begin in the queue's database, where the lease ends, and in the business database. An error rolls back both.

        Raises:
            LeaseLost: nothing is committed.
            AlreadyHandled: another process has handled the message.
        """
        with self._leasing.connections.borrow() as database, self._business.borrow() as business:
            try:
                database.call("end_lease", self._leasing.queue, begin=True, token=lease.token)
                with named(self._name):
                    business.call("record_handled", begin=True, **self._key(message))
                yield database, business
            except BaseException:
                for each in (business, database):
                    with suppress(RowpostError):
                        roll_back(each)
                raise

    def _store(self, business: Connection, message: Message, outgoing: list[Outgoing]) -> None:
        """Commit in the business database: from here on, the message is handled."""
        self._receiver.step("before commit")
        stored = {**self._key(message), "operations": encode_outgoing(outgoing)}
        with named(self._name):
            business.call_all([Call("store_operations", None, stored)] if outgoing else [], commit=True)
        self._receiver.step("stored")

    def _dispatch(self, database: Connection, message: Message, outgoing: list[Outgoing]) -> None:
        """Commit in the queue's database, in which the lease has ended."""
        calls = [Call("record_dispatch", None, self._key(message))] if outgoing else []
        calls += self._retries.forget_calls([message])
        self._receiver.processor.dispatch(database, [outgoing], commit=True, also=calls)
        self._retries.forgot([message])
        self._receiver.step("sent")

    def _settle(self, message: Message, outgoing: list[Outgoing]) -> None:
        """Forget the stored outgoing messages, which are sent. If that fails, the cleanup of the outbox does it."""
        if not outgoing:
            return
        with suppress(RowpostError):
            with self._business.borrow() as business:
                business.call_atomically("settle_operations", **self._key(message))
            with self._leasing.connections.borrow() as database:
                database.call_atomically("forget_dispatch", **self._key(message))

    def _key(self, message: Message) -> dict[str, str]:
        return {"endpoint": self._leasing.queue, "message_id": message.message_id}

    # -------------------------------------------------------------- context.commit()
    @contextmanager
    def _commit(
        self, message: Message, scope: LeaseScope, take: Callable[[], list[Outgoing]], lend: Lend
    ) -> Iterator[Any]:
        """Lend the connection to the business database, and commit both databases.

        Raises:
            LeaseLost: nothing is committed.
            AlreadyHandled: another process has handled the message. Nothing of this attempt is committed.
            HandlerEnded: the message is committed already.
        """
        check_once(message, scope)
        renewer = self._leasing.renewer
        renewer.remove(scope.lease)  # its row is locked now, so that it cannot be renewed, nor be taken away
        try:
            with self._transactions_of(message, scope.lease) as (database, business):
                yield from self._guarded(message, scope, business, lend)
                outgoing = take()
                with STOP.suspended():
                    self._store(business, message, outgoing)
                    scope.committed = True
                    try:
                        self._dispatch(database, message, outgoing)
                    except Exception as error:  # noqa: BLE001 what the handler wrote is committed: only its messages are not sent
                        roll_back(database)
                        scope.unsent = error
        finally:
            if not scope.committed:
                renewer.add(scope.lease)
        if scope.unsent is None:
            self._settle(message, outgoing)

    def _committed(self, message: Message, scope: LeaseScope, caused: Caused, failure: BaseException | None) -> Outcome:
        outcome = super()._committed(message, scope, caused, failure)
        return outcome if scope.unsent is None else self._failed(message, scope.lease, scope.unsent)

    # -------------------------------------------------------------- a message that was handled before
    def _failed(self, message: Message, lease: Lease, error: BaseException, *, gone: bool = False) -> Outcome:
        if isinstance(error, AlreadyHandled) and (known := self._find(message)) is not None:
            return self._repeat(message, lease, *known)
        return super()._failed(message, lease, error, gone=gone)

    def _repeat(self, message: Message, lease: Lease, stored: str | None, age_ms: int) -> Outcome:
        """Send the outgoing messages of a message that was handled before, if they were not sent, and remove it."""
        outgoing: list[Outgoing] = [] if stored is None else [*decode_outgoing(stored, age_ms)]
        self._receiver.step("repeating")
        try:
            try:
                self._send_again(message, lease, outgoing)
            except AlreadyDispatched:
                self._send_again(message, lease, [])
        except LeaseLost as lost:
            return self._lost(message, lost)
        except Exception as error:  # noqa: BLE001 such as a destination that is missing: retried without the handler
            return super()._failed(message, lease, error)
        self._settle(message, outgoing)
        logger.info(
            "%s: message %s was handled before.%s",
            self._leasing.queue,
            message.message_id,
            " Its outgoing messages were sent now." if outgoing else " The duplicate is dropped.",
        )
        return Outcome.done(message, None)

    def _send_again(self, message: Message, lease: Lease, outgoing: list[Outgoing]) -> None:
        calls = [Call("end_lease", self._leasing.queue, {"token": lease.token})]
        calls += [Call("record_dispatch", None, self._key(message))] if outgoing else []
        calls += self._retries.forget_calls([message])
        acknowledged = self._receiver.processor.acknowledge(message.headers)
        with self._leasing.connections.borrow() as database:
            self._receiver.processor.dispatch(
                database, [[*outgoing, *acknowledged]], begin=True, commit=True, also=calls
            )
        self._retries.forgot([message])
