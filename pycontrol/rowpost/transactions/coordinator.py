"""One transaction over the queue's database and others: two-phase commit, with the queue's own commit as the decision.

    handler:  context.enlist("shop") -> a transaction is begun at the participant
    then:     record_decision (uncommitted, and a lock that says that we live)
              PREPARE at every participant
              what was sent, the removal of the message and the decision COMMIT together: from here it is decided
              COMMIT PREPARED at every participant; the decision is forgotten together with a later one

Whatever fails before the decision is rolled back everywhere, and the message is tried again. Who dies on the way leaves
transactions in doubt: recovery.py ends them, by the decision or by its absence.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.database.dialects.guarding import HandlerGuard
from rowpost.database.dialects.two_phase import Participant, coordinator_id, identity, open_participant
from rowpost.errors import HandlerBrokeTransaction, ParticipantFailed, RowpostError, SettingsError
from rowpost.transactions.recovery import recover

__all__ = ["Coordinator", "Step"]

logger = logging.getLogger("rowpost")

#: called with the name of each step of a message's way, for tests that end the process there
Step = Callable[[str], None]

# How many decisions are forgotten at most beside a new one.
FORGOTTEN_AT_ONCE = 20

Call = tuple[str, str | None, dict[str, Any]]


@dataclass(slots=True)
class _Branch:
    """A participant's part of the transaction in hand. `autocommit`: as a handler's own connection had it."""

    participant: Participant
    guard: HandlerGuard
    autocommit: bool = False

    def release(self) -> None:
        if self.autocommit and self.participant.idle:
            self.participant.connection.autocommit = True


class Coordinator:
    """The transactions of one worker, one after the other; connections to participants are kept.

    `participants` are URLs by name. One that is the queue's own database takes part with the receiving connection.
    """

    def __init__(self, queue: str, participants: Mapping[str, str], step: Step) -> None:
        self._queue, self._urls, self._step = queue, dict(participants), step
        self._participants: dict[str, Participant] = {}
        self._branches: dict[str, _Branch] = {}
        self._home: tuple[Any, str] = (None, "")
        self._transaction_id: str | None = None
        self._deciding = False
        self._carried_out: list[str] = []
        self._forgetting: list[str] = []
        #: whether something was left for recovery
        self.in_doubt = False

    @property
    def participants(self) -> Mapping[str, str]:
        return self._urls

    @property
    def active(self) -> bool:
        """Whether a participant has a transaction open."""
        return bool(self._branches)

    # -------------------------------------------------------------- while the handler runs
    def home(self, database: Connection) -> Connection:
        """The queue's database."""
        return database

    def enlist(self, participant: Any, database: Connection) -> Any:
        """The connection to a participant, in a transaction that ends as the message's does.

        Raises:
            SettingsError: no such participant, or its server prepares no transactions.
            ParticipantFailed: it cannot be reached.
        """
        home = self._identity(database)
        found = self._named(participant) if isinstance(participant, str) else self._adopted(participant, home)
        if found.identity == home:
            return database.driver_connection
        branch = self._branches.get(found.identity)
        if branch is None:
            branch = self._begin(found, home)
        return branch.participant.connection

    def _identity(self, database: Connection) -> str:
        if self._home[0] is not database.driver_connection:
            with database.translated():
                self._home = (database.driver_connection, identity(database.driver_connection))
        return self._home[1]

    def _begin(self, participant: Participant, home: str) -> _Branch:
        if self._transaction_id is None:
            self._transaction_id = f"{coordinator_id(home)}_{uuid4().hex}"
        # a server takes each identifier once, whatever database it is for
        participant.begin(f"{self._transaction_id}.{len(self._branches) + 1}")
        guard = HandlerGuard(participant.connection, self._refuse(participant.name))
        branch = _Branch(participant, guard, participant.autocommit)
        self._branches[participant.identity] = branch
        branch.guard.start()
        return branch

    def _named(self, name: str) -> Participant:
        url = self._urls.get(name)
        if url is None:
            raise SettingsError(
                f"No participant is named {name!r}; known: {', '.join(sorted(self._urls)) or 'none'}. "
                f"Give its URL: Endpoint(..., participants={{{name!r}: ...}}), or below `participants` of the environment."
            )
        known = self._participants.get(name)
        if known is None or not (known.idle or known.identity in self._branches):
            if known is not None:
                known.close()
            known = self._participants[name] = open_participant(name, url, f"rowpost participant {self._queue}")
        return known

    def _adopted(self, connection: Any, home: str) -> Participant:
        """A connection that the handler brings along: of a database that recovery knows how to reach."""
        if not type(connection).__module__.startswith("psycopg"):
            raise SettingsError(f"A {type(connection).__name__} cannot take part: enlist a name, or a connection of psycopg.")
        own = Participant("(a handler's connection)", connection)
        for branch in self._branches.values():
            if branch.participant.connection is connection:
                return branch.participant
        if not own.idle:
            raise SettingsError("The connection to enlist has a transaction open: commit or roll it back before.")
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
            "The connection to enlist leads to no participant: after a crash nobody could end its transaction. "
            "Name its database among the endpoint's participants."
        )

    def _refuse(self, name: str) -> Callable[[str], Any]:
        def refuse(verb: str) -> None:
            raise HandlerBrokeTransaction(
                f"the handler of queue {self._queue!r} {verb} the transaction or connection of the participant {name!r}: "
                "it commits together with the message; let the handler return or raise"
            )

        return refuse

    def take_back(self) -> None:
        """The handler has ended: its connections are ours again."""
        for branch in self._branches.values():
            branch.guard.stop()

    # -------------------------------------------------------------- the two phases
    def prepare(self, database: Connection) -> None:
        """The first phase; then the caller commits the queue's transaction, and with it the decision.

        Raises:
            HandlerBrokeTransaction: a participant's transaction is over, or doomed by a statement that failed.
            ParticipantFailed: one could not prepare. RowpostError: the decision could not be written.
        """
        self._check()
        names = json.dumps([branch.participant.name for branch in self._branches.values()])
        self._forgetting = self._carried_out[:FORGOTTEN_AT_ONCE]
        decide = ("record_decision", None, {"transaction_id": self._transaction_id, "participants": names})
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
                    f"the handler of queue {self._queue!r} returned as if nothing had happened after a statement failed "
                    f"at the participant {branch.participant.name!r}, which doomed the transaction"
                )

    def complete(self) -> None:
        """The second phase: it is decided. A participant that is out of reach now is left to recovery."""
        done = True
        for branch in self._branches.values():
            try:
                branch.participant.commit()
            except ParticipantFailed as error:
                branch.participant.close()
                done = False
                logger.warning("in doubt: %s Decided to commit; recovery will do so.", error)
            else:
                self._step(f"after commit {branch.participant.name}")
        self._carried_out = [each for each in self._carried_out if each not in self._forgetting]
        if done:
            self._carried_out.append(self._transaction_id)
        self._end(in_doubt=not done)

    def rollback(self) -> None:
        """Undo at every participant, prepared or not: the queue's transaction did not commit, and will not.

        Where that is not known, because the connection was lost in the middle of the commit, what is prepared is left
        to recovery.
        """
        in_doubt = False
        for branch in self._branches.values():
            branch.guard.stop()
            try:
                if not self._deciding:
                    branch.participant.rollback()
            except ParticipantFailed as error:
                logger.warning("in doubt: %s Not decided; recovery will roll it back.", error)
                branch.participant.close()
                in_doubt = True
            if self._deciding:
                branch.participant.close()
        self._end(in_doubt=in_doubt or self._deciding)

    def undecided(self) -> None:
        """The server has refused to commit: it is certain that there is no decision."""
        self._deciding = False

    def _end(self, *, in_doubt: bool) -> None:
        for branch in self._branches.values():
            branch.release()
        self._branches, self._forgetting = {}, []
        self._transaction_id, self._deciding = None, False
        self.in_doubt = self.in_doubt or in_doubt

    # -------------------------------------------------------------- when there is time
    def settle(self, database: Connection) -> None:
        """Forget what every participant has carried out, and look after what is in doubt. Outside of transactions."""
        self._forget_all(database)
        if self.in_doubt:
            self.recover(database)

    def _forget_all(self, database: Connection) -> None:
        if self._carried_out:
            self._step("before forget")
            database.call_all([_forget(each) for each in self._carried_out], begin=True, commit=True)
            self._carried_out = []

    def recover(self, database: Connection) -> None:
        """Ends what this or another worker left in doubt; participants out of reach are left for later."""
        try:
            found = recover(database, self._urls)
        except RowpostError as error:
            if database.closed:
                raise
            logger.warning("transactions in doubt were not looked after: %s", error)
            return
        self.in_doubt = bool(found.unreachable)
        for name, problem in found.unreachable.items():
            logger.warning("transactions in doubt at the participant %s were not looked after: %s", name, problem)

    def close(self, database: Connection) -> None:
        """Forget what is carried out, if that is still possible, and close the connections to participants."""
        with suppress(RowpostError):
            if not database.closed and not database.in_transaction:
                self._forget_all(database)
        for participant in self._participants.values():
            participant.close()


def _forget(transaction_id: str) -> Call:
    return ("forget_decision", None, {"transaction_id": transaction_id})
