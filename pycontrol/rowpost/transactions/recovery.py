"""End transactions in doubt: prepared at a participant by a coordinator that died or lost its connection.

`recover` ends them, `list_in_doubt` lists them. A prepared transaction is committed if the queue's database contains
its decision. It is rolled back if there is no decision and its coordinator's transaction is over. `recover` asks in
this order:

    decisions (to delete)  ->  prepared transactions  ->  does the coordinator still run?  ->  decisions (to act on)

The order ensures that it rolls back nothing that was decided meanwhile, and deletes no decision of what was prepared
meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from rowpost.database.connection import Connection
from rowpost.database.dialects.postgresql.two_phase import (
    Participant,
    coordinator_id,
    identity,
    open_participant,
    transaction_prefix,
)
from rowpost.errors import ParticipantFailed, RowpostError
from rowpost.wire.outgoing import Call

__all__ = ["InDoubt", "RecoveryResult", "list_in_doubt", "recover"]

OURS = "rowpost_"


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A prepared transaction.

    Attributes:
        participant: name of the participant.
        gid: the transaction's global identifier at the participant.
        prepared_at: when it was prepared.
        owner: the login that prepared it.
        state: decided, abandoned, running, or foreign (the database of another queue decides).
    """

    participant: str
    gid: str
    prepared_at: datetime
    owner: str
    state: str


@dataclass(slots=True)
class RecoveryResult:
    """The result of one recovery.

    Attributes:
        committed: identifiers of committed transactions.
        rolled_back: identifiers of transactions that were rolled back.
        left: transactions whose coordinator still runs.
        forgotten: how many decisions were deleted.
        unreachable: error messages by participant.
    """

    committed: list[str] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    left: list[InDoubt] = field(default_factory=list)
    forgotten: int = 0
    unreachable: dict[str, str] = field(default_factory=dict)


def list_in_doubt(database: Connection, participants: Mapping[str, str]) -> tuple[list[InDoubt], dict[str, str]]:
    """Return the prepared transactions of rowpost at the participants, and errors by participant that cannot be
    reached.
    """
    if database.engine != "postgresql":
        return [], {}
    with _reached(participants) as (reached, unreachable):
        return _judge(database, reached, unreachable), unreachable


def recover(database: Connection, participants: Mapping[str, str]) -> RecoveryResult:
    """End what is in doubt at the participants, and delete decisions that all of them have carried out.

    It is safe at any time and from several processes at once. On SQL Server there is nothing to do.

    Raises:
        RowpostError: the queue's database reported an error. What was not ended stays in doubt.
    """
    result = RecoveryResult()
    if database.engine != "postgresql":
        return result
    old = {row.transaction_id: set(json.loads(row.participants)) for row in database.call("list_decisions")}
    with _reached(participants) as (reached, result.unreachable):
        undone: set[str] = set()
        for each in _judge(database, reached, result.unreachable):
            if each.state not in ("decided", "abandoned"):
                if each.state == "running":
                    result.left.append(each)
                    undone.add(_transaction(each.gid))
                continue
            if not _end(reached[each.participant], each, result):
                undone.add(_transaction(each.gid))
        clean = {name for name in reached if name not in result.unreachable}
        forget = [key for key, names in old.items() if key not in undone and names <= clean]
        if forget:
            database.call_all(
                [Call("forget_decision", None, {"transaction_id": key}) for key in forget], begin=True, commit=True
            )
        result.forgotten = len(forget)
    return result


def _end(participant: Participant, each: InDoubt, result: RecoveryResult) -> bool:
    """Commit or roll back. Return False if it is unknown whether the transaction is over."""
    commit = each.state == "decided"
    try:
        if not participant.resolve(each.gid, commit=commit):
            return False
    except ParticipantFailed as error:
        result.unreachable[participant.name] = str(error)
        return False
    (result.committed if commit else result.rolled_back).append(each.gid)
    return True


def _judge(database: Connection, reached: Mapping[str, Participant], unreachable: dict[str, str]) -> list[InDoubt]:
    with database.translated():
        home = identity(database.raw_connection)
    own = coordinator_id(home) + "_"
    found = []
    seen: set[str] = set()
    for name, participant in reached.items():
        if participant.identity in seen:  # two names of the same database
            continue
        seen.add(participant.identity)
        try:
            found += [(name, each) for each in participant.prepared() if each.gid.startswith(OURS)]
        except ParticipantFailed as error:
            unreachable[name] = str(error)
    ours = {_transaction(each.gid) for _, each in found if each.gid.startswith(own)}
    running = {key for key in ours if database.call("probe_transaction", transaction_id=key)[0].running}
    decisions = database.call("list_decisions") if ours else []
    decided = {
        row.transaction_id
        for row in decisions
        if row.transaction_id.startswith(transaction_prefix(home, row.queue_key))
    }

    def state(gid: str) -> str:
        key = _transaction(gid)
        if key not in ours:
            return "foreign"
        if key in decided:
            return "decided"
        return "running" if key in running else "abandoned"

    return [InDoubt(name, each.gid, each.prepared_at, each.owner, state(each.gid)) for name, each in found]


def _transaction(gid: str) -> str:
    """Return the id of the transaction that a branch belongs to."""
    return gid.rpartition(".")[0]


@contextmanager
def _reached(participants: Mapping[str, str]) -> Iterator[tuple[dict[str, Participant], dict[str, str]]]:
    """Yield connections by participant, and errors by participant that cannot be reached."""
    reached: dict[str, Participant] = {}
    unreachable: dict[str, str] = {}
    try:
        for name, url in participants.items():
            try:
                reached[name] = open_participant(name, url, "rowpost recovery")
            except RowpostError as error:
                unreachable[name] = str(error)
        yield reached, unreachable
    finally:
        for participant in reached.values():
            participant.close()
