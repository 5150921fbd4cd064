"""Coordinate one transaction over the queue's database and others on PostgreSQL: two-phase commit.

`Coordinator` serves one worker. The commit of the queue's own transaction is the decision:

    handler:      context.enlist("shop") begins a transaction at the participant
    prepare:      record_decision in the queue's transaction, which also takes a lock that shows that the coordinator runs
                  PREPARE TRANSACTION at every participant
    commit:       what was sent, the removal of the message and the decision commit together
    complete:     COMMIT PREPARED at every participant; a later transaction deletes the decision

A failure before the commit rolls back everywhere, and the message is retried. If the coordinator's process dies between
the two phases, it leaves prepared transactions in doubt. `transactions.recovery` ends them: by the decision, or by its
absence.
"""  # noqa: E501

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.database.dialects.postgresql.guarding import HandlerGuard
from rowpost.database.dialects.postgresql.two_phase import Participant, identity, open_participant, transaction_prefix
from rowpost.errors import HandlerBrokeTransaction, ParticipantFailed, RowpostError, SettingsError
from rowpost.transactions.guard import used_late
from rowpost.transactions.recovery import recover
from rowpost.transactions.scope import unknown_participant
from rowpost.wire.address import parse_address, queue_key
from rowpost.wire.message import Message
from rowpost.wire.outgoing import Call

__all__ = ["Coordinator", "Step"]

logger = logging.getLogger("rowpost")

#: called with the name of each step on a message's way, for tests that end the process there
Step = Callable[[str], None]

#: how many old decisions are deleted at most together with a new one
FORGOTTEN_AT_ONCE = 20


@dataclass(slots=True)
class _Branch:
    """A participant's part of the current transaction.

    Attributes:
        participant: the database that takes part.
        guard: guards its connection while the handler runs.
        brought: the handler has brought the connection.
        autocommit: the original setting of a connection that the handler brought.
    """

    participant: Participant
    guard: HandlerGuard
    brought: bool
    autocommit: bool = False

    def release(self) -> None:
        if self.autocommit and self.participant.idle:
            self.participant.connection.autocommit = True


class Coordinator:
    """Coordinates the transactions of one worker, one after the other. Connections to participants stay open.

    Args:
        queue: the worker's queue.
        participants: URLs by name. If one is the queue's own database, it takes part with the receiving connection.
        step: is called at each step.

    Attributes:
        in_doubt: whether a transaction was left to recovery.
        unreachable: why the current message could not enlist a participant; None if it could. The caller clears it.
        message: the current message. The caller sets it.
    """

    def __init__(self, queue: str, participants: Mapping[str, str], step: Step) -> None:
        self._queue, self._urls, self._step = queue, dict(participants), step
        self._queue_key = queue_key(parse_address(queue), "postgresql")
        self._participants: dict[str, Participant] = {}
        self._branches: dict[str, _Branch] = {}
        self._home: tuple[Any, str] = (None, "")
        self._transaction_id: str | None = None
        self._deciding = False
        self._carried_out: list[str] = []
        self._forgetting: list[str] = []
        self.in_doubt = False
        self.unreachable: ParticipantFailed | None = None
        self.message: Message | None = None

    @property
    def active(self) -> bool:
        """Whether a participant has an open transaction."""
        return bool(self._branches)

    # -------------------------------------------------------------- while the handler runs
    def business_connection(self, database: Connection) -> Connection:
        """Return the receiving connection."""
        return database

    def enlist(self, participant: Any, database: Connection) -> Any:
        """Return the connection to a participant, in a transaction that ends as the message's does.

        Raises:
            SettingsError: no participant has this name, or its server does not allow prepared transactions.
            ParticipantFailed: the participant cannot be reached.
        """
        home = self._identity(database)
        found = self._named(participant) if isinstance(participant, str) else self._adopted(participant, home)
        if found.identity == home:
            return database.driver_connection
        branch = self._branches.get(found.identity)
        if branch is None:
            branch = self._begin(found, home, brought=not isinstance(participant, str))
        return branch.participant.connection if branch.brought else branch.guard.lend(branch.participant.connection)

    def _identity(self, database: Connection) -> str:
        if self._home[0] is not database:
            with database.translated():
                self._home = (database, identity(database.raw_connection))
        return self._home[1]

    def _begin(self, participant: Participant, home: str, *, brought: bool) -> _Branch:
        if self._transaction_id is None:
            self._transaction_id = f"{transaction_prefix(home, self._queue_key)}{uuid4().hex}"
        # a server accepts each identifier once, for all of its databases together
        participant.begin(f"{self._transaction_id}.{len(self._branches) + 1}")
        guard = HandlerGuard(
            participant.connection, self._refuse(participant.name), self._refuse_late(participant.name)
        )
        branch = _Branch(participant, guard, brought, participant.autocommit)
        self._branches[participant.identity] = branch
        branch.guard.start(self.message, in_place=brought)
        return branch

    def _named(self, name: str) -> Participant:
        url = self._urls.get(name)
        if url is None:
            raise unknown_participant(name, self._urls)
        known = self._participants.get(name)
        if known is None or not (known.idle or known.identity in self._branches):
            if known is not None:
                known.close()
            known = self._participants[name] = self._open(name, url)
        return known

    def _open(self, name: str, url: str) -> Participant:
        try:
            return open_participant(name, url, f"rowpost participant {self._queue}")
        except ParticipantFailed as error:
            self.unreachable = error
            raise

    def find_outage(self) -> ParticipantFailed | None:
        """Return why a participant of the failed message cannot be reached now; None if all can be reached.

        A connection that was lost is opened again: if that works, the message itself may have ended the old one.
        """
        for branch in self._branches.values():
            name = branch.participant.name
            if self.unreachable is None and branch.participant.closed and name in self._urls:
                with suppress(ParticipantFailed):
                    self._open(name, self._urls[name]).close()
        return self.unreachable

    def _adopted(self, connection: Any, home: str) -> Participant:
        """Return the participant of a connection that the handler brings.

        Its database must be one that recovery can reach.
        """
        if not type(connection).__module__.startswith("psycopg"):
            raise SettingsError(
                f"A {type(connection).__name__} cannot take part in the transaction. Enlist a participant's name, or a "
                "psycopg connection."
            )
        own = Participant("(a handler's connection)", connection)
        for branch in self._branches.values():
            if branch.participant.connection is connection:
                return branch.participant
        if not own.idle:
            raise SettingsError(
                "The connection cannot take part: it has an open transaction. Commit or roll back before you enlist it."
            )
        own.autocommit, connection.autocommit = connection.autocommit, True
        with own.translated("asked who it is"):
            own.identity = identity(connection)
        connection.autocommit = False
        if own.identity == home:
            raise SettingsError("The connection leads to the queue's own database: work with context.connection.")
        for name in self._urls:
            if self._named(name).identity == own.identity:
                own.name = name
                return own
        raise SettingsError(
            "The connection cannot take part: its database is not a participant, so that recovery could not end its "
            "transaction after a crash. Add the database to the endpoint's participants."
        )

    def _refuse(self, name: str) -> Callable[[str], Any]:
        def refuse(verb: str) -> None:
            raise HandlerBrokeTransaction(
                f"The handler of queue {self._queue!r} {verb} the transaction or connection of the participant "
                f"{name!r}, which commits together with the message. Let the handler return or raise instead."
            )

        return refuse

    def _refuse_late(self, name: str) -> Callable[[Any], NoReturn]:
        def refuse(message: Message | None) -> NoReturn:
            raise used_late(f"The connection to the participant {name!r}", message, self._queue)

        return refuse

    def stop_guards(self) -> None:
        """Stop to guard the participants' connections, because the handler has ended."""
        for branch in self._branches.values():
            branch.guard.stop()

    # -------------------------------------------------------------- the two phases
    def prepare(self, database: Connection) -> None:
        """Do the first phase. Then the caller commits the queue's transaction, and with it the decision.

        Raises:
            HandlerBrokeTransaction: a participant's transaction is over, or doomed by a statement that failed.
            ParticipantFailed: a participant could not prepare.
            RowpostError: the decision could not be written.
        """
        self._check()
        names = json.dumps([branch.participant.name for branch in self._branches.values()])
        self._forgetting = self._carried_out[:FORGOTTEN_AT_ONCE]
        decided = {"queue_key": self._queue_key, "transaction_id": self._transaction_id, "participants": names}
        decide = Call("record_decision", None, decided)
        database.call_all([decide, *map(_forget, self._forgetting)])
        self._step("recorded")
        for branch in self._branches.values():
            self._step(f"before prepare {branch.participant.name}")
            branch.participant.prepare()
            self._step(f"after prepare {branch.participant.name}")
        self._deciding = True

    def _check(self) -> None:
        for branch in self._branches.values():
            if branch.participant.closed:
                raise ParticipantFailed(f"The connection to the participant {branch.participant.name!r} was lost.")
            if branch.guard.ended or branch.participant.idle:
                self._refuse(branch.participant.name)("ended")
            if branch.participant.doomed:
                raise HandlerBrokeTransaction(
                    f"The handler of queue {self._queue!r} returned as if nothing had happened after a statement "
                    f"failed at the participant {branch.participant.name!r}, which doomed the transaction. Let the "
                    "handler raise."
                )

    def complete(self) -> None:
        """Do the second phase, after the decision was committed.

        A participant that cannot be reached is left to recovery.
        """
        done = True
        for branch in self._branches.values():
            try:
                branch.participant.commit()
            except ParticipantFailed as error:
                branch.participant.close()
                done = False
                logger.warning("A transaction is in doubt: %s Recovery will commit it.", error)
            else:
                self._step(f"after commit {branch.participant.name}")
        self._carried_out = [each for each in self._carried_out if each not in self._forgetting]
        if done and self._transaction_id is not None:
            self._carried_out.append(self._transaction_id)
        self._end(in_doubt=not done)

    def rollback(self) -> None:
        """Roll back at every participant, because the queue's transaction did not commit.

        If the outcome is unknown, because the connection was lost during the commit, prepared transactions are left to
        recovery.
        """
        in_doubt = False
        for branch in self._branches.values():
            branch.guard.stop()
            try:
                if not self._deciding:
                    branch.participant.rollback()
            except ParticipantFailed as error:
                logger.warning("A transaction is in doubt: %s Recovery will roll it back.", error)
                branch.participant.close()
                in_doubt = True
            if self._deciding:
                branch.participant.close()
        self._end(in_doubt=in_doubt or self._deciding)

    def not_decided(self) -> None:
        """Note that the server has refused to commit, so that there is no decision."""
        self._deciding = False

    def _end(self, *, in_doubt: bool) -> None:
        for branch in self._branches.values():
            branch.release()
            if branch.guard.changed and branch.participant in self._participants.values():
                branch.participant.close()  # the next message gets a session of its own
        self._branches, self._forgetting = {}, []
        self._transaction_id, self._deciding = None, False
        self.in_doubt = self.in_doubt or in_doubt

    # -------------------------------------------------------------- when the queue is empty
    def settle(self, database: Connection) -> None:
        """Delete the decisions that all participants have carried out, and end what is in doubt.

        No transaction is open.
        """
        self._forget_all(database)
        if self.in_doubt:
            self.recover(database)

    def _forget_all(self, database: Connection) -> None:
        if self._carried_out:
            self._step("before forget")
            database.call_all([_forget(each) for each in self._carried_out], begin=True, commit=True)
            self._carried_out = []

    def recover(self, database: Connection) -> None:
        """End what this or another worker left in doubt. Participants that cannot be reached are left for later."""
        try:
            found = recover(database, self._urls)
        except RowpostError as error:
            if database.closed:
                raise
            logger.warning("Transactions in doubt were not resolved: %s", error)
            return
        self.in_doubt = bool(found.unreachable)
        for name, problem in found.unreachable.items():
            logger.warning("Transactions in doubt at the participant %s were not resolved: %s", name, problem)

    def close(self, database: Connection) -> None:
        """Delete the decisions that are carried out, if possible, and close the connections to participants."""
        with suppress(RowpostError):
            if not database.closed and not database.in_transaction:
                self._forget_all(database)
        for participant in self._participants.values():
            participant.close()


def _forget(transaction_id: str) -> Call:
    return Call("forget_decision", None, {"transaction_id": transaction_id})
