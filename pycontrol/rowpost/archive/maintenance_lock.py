"""The lock of an archive's maintenance: two jobs do not rewrite the same files at once and throw one result away.

The lock saves work. The log of the table is what protects the messages: a job whose lock was taken loses nothing.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from rowpost.archive.folder import ArchiveFolder
from rowpost.errors import SparkFailed

__all__ = ["maintenance_lock"]

_NAME = "maintenance.json"
_LASTS = timedelta(minutes=15)
_WAIT_S, _POLL_S, _RENEW_S = 60.0, 0.5, 60.0


@contextmanager
def maintenance_lock(folder: ArchiveFolder, job: str, *, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Hold the lock within the block. A thread renews it.

    The lock of a process that has ended, or has not renewed it for 15 minutes, is taken over. Raises SparkFailed,
    which names the other job, if it still holds the lock after `wait_s` seconds.
    """
    own = {"job": job, "host": socket.gethostname(), "pid": os.getpid(), "since": _in(timedelta(0))}
    end, ended = time.monotonic() + wait_s, threading.Event()
    while not folder.create(_NAME, own | {"expires": _in(_LASTS)}):
        holder = folder.read(_NAME)
        # None: its writer was killed
        if folder.age_s(_NAME) > _LASTS.total_seconds() if holder is None else _is_over(holder):
            folder.remove(_NAME)
        elif time.monotonic() >= end:
            running = "{job} has been running since {since} on {host}, process {pid}"
            known = "another job" if holder is None else running.format_map(holder)
            raise SparkFailed(
                f"Cannot {job} {folder.path} now: {known}. Nothing was changed. Wait for it to end, and run the "
                "command again."
            )
        else:
            time.sleep(_POLL_S)

    def renew() -> None:
        while not ended.wait(_RENEW_S):
            folder.write(_NAME, own | {"expires": _in(_LASTS)})

    renewal = threading.Thread(target=renew, daemon=True)
    renewal.start()
    try:
        yield
    finally:
        ended.set()
        renewal.join()
        folder.remove(_NAME)


def _in(span: timedelta) -> str:
    return (datetime.now(UTC) + span).isoformat(timespec="seconds")


def _is_over(holder: dict[str, Any]) -> bool:
    if datetime.fromisoformat(holder["expires"]) < datetime.now(UTC):
        return True
    if holder["host"] != socket.gethostname() or holder["pid"] == os.getpid():
        return False
    try:
        os.kill(holder["pid"], 0)
    except OSError as error:  # PermissionError: the process of another user runs
        return isinstance(error, ProcessLookupError)
    return False
