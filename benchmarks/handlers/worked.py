"""Our endpoints in the suite: worker processes import this module.

Some note seconds in a file of their own process, eight bytes for each message, in the folder of ROWPOST_BENCH_NOTES.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from functools import cache

from rowpost.endpoint.endpoint import Endpoint
from rowpost.wire.message_types import message_type

__all__ = ["NOTES", "Follow", "Work", "clocked", "insert", "late", "nothing", "slow", "timed"]

#: environment variable: the folder where `timed`, `late` and `clocked` write
NOTES = "ROWPOST_BENCH_NOTES"


@message_type("Bench.Work")
@dataclass(frozen=True)
class Work:
    number: int


@message_type("Bench.Follow")
@dataclass(frozen=True)
class Follow:
    number: int


insert = Endpoint("Bench")
nothing = Endpoint("Bench")
slow = Endpoint("Bench")


@insert.handles("Bench.Work", Work)
def insert_and_send(message: Work, context) -> None:
    """One business INSERT and one outgoing message, which commit together with the removal of this one."""
    context.connection.execute("INSERT INTO business (number) VALUES (%s)", (message.number,))
    context.send(Follow(message.number), to="Follow")


@nothing.handles("Bench.Work", Work)
def do_nothing(message: Work, context) -> None:
    """The message is decoded, and that is all."""


@slow.handles("Bench.Work", Work)
def wait_a_little(message: Work, context) -> None:
    """As a handler that asks a neighbour service."""
    time.sleep(0.02)


def timed(message, connection) -> None:
    """A plain handler: the body says when the message was sent, in seconds of the monotonic clock. Notes how long ago."""
    now = time.monotonic()
    _note(now - float(message.body))


def late(message, connection) -> None:
    """The body says when the message was due, in seconds since 1970. Notes how long ago."""
    _note(time.time() - float(message.body))


def clocked(message, connection) -> None:
    """Notes how long ago this process had its last message: without batches, how long one takes from end to end."""
    now = time.monotonic()
    _note(now - _last[0])
    _last[0] = now


def _note(seconds: float) -> None:
    os.write(_file(), struct.pack("d", seconds))


@cache
def _file() -> int:
    name = os.path.join(os.environ[NOTES], str(os.getpid()))
    return os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


_last = [time.monotonic()]
