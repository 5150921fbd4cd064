"""Check that a replication slot still has what a stream must read, and refuse the stream otherwise. Only `check_log` and `confirm` perform I/O.

An offset of mode=log is `{"log": LSN, "slot": name, "system": id, "timeline": number, "queues": {name: identity}}`. All
transactions that committed below the LSN are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rowpost.database.connection import Connection
from rowpost.database.dialects.pgoutput import format_lsn, parse_lsn
from rowpost.database.dialects.slots import LogState, Slot, advance_slot, describe_log, publication_name
from rowpost.errors import SettingsError
from rowpost.spark.source.connection import NOT_POSTGRESQL
from rowpost.spark.source.queue_stream import StreamRefused, check_offset
from rowpost.spark.source.reconnect import PatientConnection
from rowpost.wire.address import parse_address, queue_key

__all__ = [
    "LogOffset",
    "check_log",
    "check_ready",
    "check_same",
    "check_slot",
    "check_timeline",
    "check_unread",
    "confirm",
    "log_position",
    "publications",
]

LogOffset = dict[str, Any]
_KEYS = ("log", "slot", "system", "timeline", "queues")
_ANEW = "Drop the slot if it exists, and start with a new checkpoint. Messages that were sent and removed in between are lost to the stream; what is still in the queue can be read with mode=tail."


def publications(queues: tuple[str, ...]) -> dict[str, str]:
    """Return the publication of each queue."""
    return {queue: publication_name(queue_key(parse_address(queue), "postgresql")) for queue in queues}


def log_position(offset: Mapping[str, Any]) -> int:
    """Return the LSN of an offset. Raises StreamRefused for the offset of another mode."""
    check_offset(_KEYS, dict(offset))
    return parse_lsn(offset["log"])


def check_ready(state: LogState, names: Mapping[str, str]) -> None:
    """Raise StreamRefused if the server keeps no log for decoding, or a queue has no publication."""
    if state.wal_level != "logical":
        raise StreamRefused(
            f"mode=log needs wal_level=logical, and the server has {state.wal_level}. An administrator runs ALTER SYSTEM SET wal_level = 'logical' and restarts "
            "the server (Amazon RDS: rds.logical_replication=1; Cloud SQL: cloudsql.logical_decoding=on; Azure: wal_level=logical)."
        )
    missing = [queue for queue, publication in names.items() if publication not in state.tables]
    if missing:
        raise StreamRefused(
            f"The queue {missing[0]} has no publication of its inserts, which mode=log reads. Write `publication: true` at the queue in the environment's file, "
            "and run rowpost apply."
        )


def check_same(offset: LogOffset, slot: str, state: LogState, names: Mapping[str, str]) -> None:
    """Raise StreamRefused if a checkpoint belongs to another server, slot or queue."""
    if offset["system"] != state.system:
        raise StreamRefused(
            f"This checkpoint belongs to the log of another server (its data have the identifier {offset['system']}, these have {state.system}): the database "
            f"was moved or restored by export and import. {_ANEW}"
        )
    if offset["slot"] != slot:
        raise StreamRefused(
            f"This checkpoint belongs to the slot {offset['slot']}, and the stream reads {slot}. Set the option slot, or start with a new checkpoint."
        )
    if offset["queues"].keys() != names.keys():
        raise StreamRefused(
            f"This checkpoint belongs to a stream of the queues {', '.join(offset['queues'])}, and this one reads {', '.join(names)}. Start each set of queues with a "
            "checkpoint and a slot of its own."
        )
    for queue, publication in names.items():
        if offset["queues"][queue] != state.tables[publication].identity:
            raise StreamRefused(f"The queue {queue}, or its publication, was dropped and created again. {_ANEW}")


def check_timeline(offset: LogOffset, state: LogState, left_at: int | None) -> None:
    """Raise StreamRefused if a server that was promoted lacks what the stream has read.

    Args:
        left_at: the LSN at which the server left the timeline of the offset; None if its history does not have that timeline.
    """
    if left_at is None or log_position(offset) > left_at:
        known = "does not have that history" if left_at is None else f"has it up to {format_lsn(left_at)} only"
        raise StreamRefused(
            f"This stream has read the log up to {offset['log']} of timeline {offset['timeline']}, and the server, which is on timeline {state.timeline} now, {known}: it was "
            f"restored, or promoted without the last transactions of its primary. {_ANEW}"
        )


def check_slot(offset: LogOffset, state: LogState, *, fail_on_data_loss: bool) -> Slot:
    """Return the slot. Raises StreamRefused if it is gone or has lost what the stream must read."""
    slot, position = state.slot, log_position(offset)
    if slot is None:
        raise StreamRefused(
            f"The slot {offset['slot']} of this stream does not exist: somebody dropped it, or the server was restored or failed over to a standby that did not keep it. {_ANEW}"
        )
    if slot.is_lost:
        raise StreamRefused(
            f"The server has removed log that this stream has not read: its slot {slot.name} is {slot.reason or slot.status}, because it held back more than "
            f"max_slot_wal_keep_size allows or was idle for too long. {_ANEW}"
        )
    if position < slot.confirmed and fail_on_data_loss:
        raise StreamRefused(
            f"This stream has read the log up to {offset['log']}, but its slot {slot.name} begins at {format_lsn(slot.confirmed)}: the slot was dropped and created again, or "
            "another stream uses it. Messages in between are lost. To continue with the others, set failOnDataLoss=false."
        )
    if position > state.flushed:
        raise StreamRefused(
            f"This stream has read the log up to {offset['log']}, but the server's log ends at {format_lsn(state.flushed)}: the server was restored. {_ANEW}"
        )
    return slot


def check_unread(start: LogOffset, end: LogOffset) -> None:
    """Raise StreamRefused if a batch begins after its end: its slot was created again since it was planned."""
    if log_position(start) > log_position(end):
        raise StreamRefused(
            f"The planned batch ends at {end['log']}, but the slot {start['slot']} begins at {start['log']}: it was dropped and created again. {_ANEW}"
        )


def check_log(database: Connection, queues: Sequence[str]) -> None:
    """Check that a stream can read the log of these queues, before Spark is started. Raises SettingsError, StreamRefused."""
    if database.engine != "postgresql":
        raise SettingsError(NOT_POSTGRESQL)
    names = publications(tuple(queues))
    with database.translated():
        check_ready(describe_log(database.driver_connection, "", list(names.values())), names)


def confirm(connection: PatientConnection, offset: LogOffset) -> None:
    """Confirm all transactions up to an offset. Raises StreamRefused for the offset of another mode."""
    position = log_position(offset)

    def go(database: Connection) -> None:
        with database.translated():
            advance_slot(database.driver_connection, offset["slot"], position)

    connection.run(go)
