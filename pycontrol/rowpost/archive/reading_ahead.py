"""Read the next batches in a thread while the last one is parsed and written: the driver and Parquet's writer release Python's lock."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["read_ahead"]

_COUNT = 2  # batches that wait in memory
_END = object()
_Batch = TypeVar("_Batch")


def read_ahead(batches: Generator[_Batch]) -> Iterator[_Batch]:
    """Yield the batches of a generator, which runs in a thread of its own, and raise what it raises."""
    waiting: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(_COUNT)
    ended = threading.Event()
    threading.Thread(target=_read, args=(batches, waiting, ended), daemon=True).start()
    try:
        while True:
            batch, error = waiting.get()
            if error is not None:
                raise error
            if batch is _END:
                return
            yield batch
    finally:
        ended.set()
        with suppress(queue.Empty):  # the thread waits for room, and ends when it has it
            while True:
                waiting.get_nowait()


def _read(batches: Generator[Any], waiting: queue.Queue[tuple[Any, BaseException | None]], ended: threading.Event) -> None:
    try:
        for batch in batches:
            waiting.put((batch, None))
            if ended.is_set():
                return
        waiting.put((_END, None))
    except BaseException as error:  # noqa: BLE001 -- raised again where the batches are used
        waiting.put((None, error))
    finally:
        batches.close()
