"""Send what a worker process logs to its supervisor, so that one process writes all lines."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import islice
from typing import Any

from rowpost.errors import MessageCorrupt
from rowpost.workers.events import Logged
from rowpost.workers.protocol import InFlight

__all__ = ["LogForwarder", "forward_logs"]

#: characters of a record, with the stack of its exception
LONGEST_TEXT = 16_384
#: the most values of `extra=` that are sent with a record, and the characters of each
MOST_EXTRA, LONGEST_EXTRA = 50, 1000
_LARGEST = 1 << 63
_OF_EVERY_RECORD = frozenset((*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"))


class LogForwarder(logging.Handler):
    """Sends each record through the worker's pipe, with the id of the in-flight message.

    A process that a handler forks has the same pipe, and must not write into it: its records go to stderr.
    """

    def __init__(self, send: Callable[[object], None], in_flight: Callable[[], InFlight | None]) -> None:
        super().__init__()
        self._send, self._in_flight = send, in_flight
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. An error of its formatting is printed on stderr, as any handler of logging does."""
        if os.getpid() != self._pid:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 -- a log line must not fail a message
            self.handleError(record)
            return
        if len(text) > LONGEST_TEXT:
            text = f"{text[:LONGEST_TEXT]} … ({len(text) - LONGEST_TEXT:,} characters more)"
        self._send(
            Logged(
                at=record.created,
                pid=self._pid,
                level=record.levelno,
                logger=record.name,
                text=text,
                message_id=self._message_id(),
                extra=_extra(record),
            )
        )

    def _message_id(self) -> str | None:
        in_flight = self._in_flight()
        held = None if in_flight is None else in_flight.held
        if held is None:
            return None
        try:
            return held.message_id
        except MessageCorrupt:
            return str(held.id)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a caller has given as `extra=`, as JSON has it. Other values are texts."""
    given = {key: value for key, value in record.__dict__.items() if key not in _OF_EVERY_RECORD}
    return {key: _plain(value) for key, value in islice(given.items(), MOST_EXTRA)} if given else {}


def _plain(value: Any) -> Any:
    if value is None or type(value) is bool or (type(value) in (int, float) and abs(value) < _LARGEST):
        return value
    try:
        return str(value)[:LONGEST_EXTRA]
    except Exception as error:  # noqa: BLE001 -- a log line must not fail a message
        return f"{type(value).__name__}, whose text raises {type(error).__name__}"


def forward_logs(send: Callable[[object], None], in_flight: Callable[[], InFlight | None], level: int) -> None:
    """Let all loggers of this process send what is at least as severe as `level`, a number of the module logging.

    Args:
        send: sends a report.
        in_flight: returns what holds the message that the calling thread or task handles.
        level: see above.
    """
    root = logging.getLogger()
    root.handlers[:] = [LogForwarder(send, in_flight)]
    root.setLevel(level)
