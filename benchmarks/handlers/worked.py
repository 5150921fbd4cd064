"""The endpoints and handlers of the suite. Worker processes import this module.

`timed`, `late` and `clocked` append seconds, eight bytes for each message, to a file of their process in the folder that
ROWPOST_BENCH_NOTES names.
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

#: The environment variable that names the folder of the notes.
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
    """Execute one business INSERT and send one message. Both commit together with the removal of this message."""
    context.connection.execute("INSERT INTO business (number) VALUES (%s)", (message.number,))
    context.send(Follow(message.number), to="Follow")


@nothing.handles("Bench.Work", Work)
def do_nothing(message: Work, context) -> None:
    """Do nothing: the message is only decoded."""


@slow.handles("Bench.Work", Work)
def wait_a_little(message: Work, context) -> None:
    """Wait like a handler that calls another service."""
    time.sleep(0.02)


def timed(message, connection) -> None:
    """Note the seconds since the message was sent. The body is that time on the monotonic clock."""
    now = time.monotonic()
    _note(now - float(message.body))


def late(message, connection) -> None:
    """Note the seconds since the message was due. The body is that time in seconds since 1970."""
    _note(time.time() - float(message.body))


def clocked(message, connection) -> None:
    """Note the seconds since this process handled its last message: without batches, the whole time of one message."""
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
