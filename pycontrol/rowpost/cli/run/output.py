"""Write the output of a program that runs for long, without ever waiting for its reader.

    with patient(session, as_json=False):
        session.out.print("a line")     # returns at once

A pipe that its reader does not read blocks the writer. Therefore a thread writes, and what waits for it is bounded:
what does not fit is left out, and a line says how many lines that were. A terminal is written to directly.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rowpost.cli.printing import json_text
from rowpost.cli.session import Session

__all__ = ["MOST", "PatientOutput", "patient"]

#: characters that wait for the reader at most
MOST = 1_000_000
#: how long the end of the program waits for the reader, in seconds
PATIENCE_S = 2.0
CHUNK = 65536


class PatientOutput(io.TextIOBase):
    """Text for a file descriptor, which a thread writes.

    Args:
        stream: whose descriptor and encoding are used.
        left_out: returns the line that says how many lines were left out.
    """

    def __init__(self, stream: Any, left_out: Callable[[int], str]) -> None:
        self._descriptor, self._encoding, self._errors = stream.fileno(), stream.encoding, stream.errors
        self._left_out = left_out
        self._waiting: deque[str] = deque()
        self._size = self._lines_left_out = 0
        self._failed: OSError | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="rowpost output", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the stream."""
        return str(self._encoding)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Take the text, or count its lines if too much waits already.

        Raises OSError if the reader has gone, as the stream does.
        """
        with self._changed:
            if self._failed is not None:
                raise self._failed
            if self._size + len(text) > MOST:
                self._lines_left_out += text.count("\n")
            else:
                self._tell_what_was_left_out()
                self._add(text)
        return len(text)

    def finish(self, seconds: float = PATIENCE_S) -> bool:
        """Wait until all is written, at most so many seconds. Return whether it is. Raises OSError as `write` does."""
        with self._changed:
            self._tell_what_was_left_out()
            written = self._changed.wait_for(lambda: self._size == 0 or self._failed is not None, seconds)
            if self._failed is not None:
                raise self._failed
            return written

    def _tell_what_was_left_out(self) -> None:
        if self._lines_left_out:
            self._add(self._left_out(self._lines_left_out))
            self._lines_left_out = 0

    def _add(self, text: str) -> None:
        self._waiting.append(text)
        self._size += len(text)
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                text = self._waiting.popleft()
            try:
                self._write_now(text.replace("\n", os.linesep).encode(self._encoding, self._errors))
            except OSError as error:
                with self._changed:
                    self._failed = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._size -= len(text)
                self._changed.notify_all()

    def _write_now(self, data: bytes) -> None:
        """Write to the descriptor itself: a thread that waits in a Python stream would keep the interpreter from
        ending.
        """
        while data:
            try:
                data = data[os.write(self._descriptor, data[:CHUNK]) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])


def _line_of_left_out(count: int, *, as_json: bool) -> str:
    if as_json:
        return (
            json_text(
                {"event": "LinesLeftOut", "at": datetime.now(UTC).isoformat(), "level": "warning", "count": count}
            )
            + "\n"
        )
    return f"{datetime.now():%H:%M:%S} {count} lines were left out here, because nobody read the output.\n"


@contextmanager
def patient(session: Session, *, as_json: bool) -> Iterator[None]:
    """Write results within the block without waiting for their reader, unless they go to a terminal.

    At the end, a reader gets two seconds for what is left. If it does not read, the errors that the same reader would
    get are dropped too.
    """
    console: Any = session.out
    stream = console.file
    try:
        patient_output = None if stream.isatty() else PatientOutput(stream, partial(_line_of_left_out, as_json=as_json))
    except io.UnsupportedOperation:  # a stream of a Python program, which does not block
        patient_output = None
    if patient_output is None:
        yield
        return
    stream.flush()
    console.file = patient_output
    try:
        yield
    finally:
        try:
            if not patient_output.finish():
                _drop_errors(stream)
        finally:
            console.file = stream


def _drop_errors(stream: Any) -> None:
    """Send stderr nowhere if it goes where the stream goes."""
    with suppress(OSError, io.UnsupportedOperation):
        if os.path.sameopenfile(stream.fileno(), sys.stderr.fileno()):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stderr.fileno())
            os.close(nowhere)
