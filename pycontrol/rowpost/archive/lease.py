"""The lease of an archive's maintenance: two jobs do not rewrite the same files at once and throw one result away.

The lease saves work. The log of the table is what protects the messages: a job whose lease was taken loses nothing.
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

__all__ = ["lease"]

_NAME = "maintenance.json"
_LASTS = timedelta(minutes=15)
_WAIT_S, _POLL_S, _RENEW_S = 60.0, 0.5, 60.0


@contextmanager
def lease(folder: ArchiveFolder, job: str, *, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Hold the lease within the block. A thread renews it.

    The lease of a process that has exited on this machine, and one that was not renewed for 15 minutes, are taken over.
    Raises SparkFailed, which names the other job, if it still holds the lease after `wait_s` seconds.
    """
    own = {
        "job": job,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    end = time.monotonic() + wait_s
    while not folder.create(_NAME, own | _expiry()):
        holder = folder.read(_NAME)
        is_over = (
            folder.age_s(_NAME) > _LASTS.total_seconds() if holder is None else _is_over(holder)
        )  # None: its writer was killed
        if is_over:
            folder.remove(_NAME)
        elif time.monotonic() >= end:
            raise SparkFailed(_refusal(folder.path, job, holder))
        else:
            time.sleep(_POLL_S)
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(folder, own, ended), daemon=True)
    renewal.start()
    try:
        yield
    finally:
        ended.set()
        renewal.join()
        folder.remove(_NAME)


def _renew(folder: ArchiveFolder, own: dict[str, Any], ended: threading.Event) -> None:
    while not ended.wait(_RENEW_S):
        folder.write(_NAME, own | _expiry())


def _expiry() -> dict[str, str]:
    return {"expires": (datetime.now(UTC) + _LASTS).isoformat(timespec="seconds")}


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


def _refusal(path: str, job: str, holder: dict[str, Any] | None) -> str:
    running = "{job} has been running since {since} on {host}, process {pid}"
    known = "another job" if holder is None else running.format_map(holder)
    return f"Cannot {job} {path} now: {known}. Nothing was changed. Wait for it to end, and run the command again."
